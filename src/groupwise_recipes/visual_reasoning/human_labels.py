"""How far a judge of entailment agrees with people.

    python -m groupwise_recipes.visual_reasoning.human_labels --data vsr --labels FILE --out DIR

People's labels come with a published file of reasonings about VSR's captions. What the judge says
of the same reasonings is measured as ``groupwise judge`` measures recorded verdicts.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from groupwise.cli.main import main
from groupwise.cli.options import PATH, option
from groupwise.core import DataError, Message, load_config, make_example
from groupwise.evaluation.report.page import describe_metric
from groupwise.judge_calibration.calibration import Calibration, measure_recorded
from groupwise.judge_calibration.verdicts import VerdictRow, read_recorded, write_verdicts
from groupwise.judges import Judge, NoVerdict, Question, Verdict, judge_all
from groupwise.rewards import LabelParser
from groupwise_recipes.visual_reasoning.config import LABELS, AlignmentSettings
from groupwise_recipes.visual_reasoning.judging import ALIGNED, ask_about, open_judge
from groupwise_recipes.visual_reasoning.rows import LoadedRows, Reasoning, VisualRow
from groupwise_recipes.visual_reasoning.sources import add_judged, load_vsr

NOT_ALIGNED = "not aligned"
_PROMPT = "Is the following statement true: "
_ANSWERS = LabelParser(labels=LABELS)
_SHOWN = ("agreement", "kappa", "no_verdict_rate")


@click.command()
@option("--data", type=PATH, required=True, help="Folder with VSR's train, dev, test as JSONL.")
@option("--labels", type=PATH, required=True, help="JSON list of reasonings that people judged.")
@option("--out", type=PATH, required=True, help="Folder for verdicts and report.")
@option("--judge", type=PATH, show_default="rules", help="YAML of the judge, as a run's alignment.")
def judge_reasoning(data: Path, labels: Path, out: Path, judge: Path | None) -> None:
    """Ask a judge of entailment what people decided; write how far they agree."""
    settings = AlignmentSettings() if judge is None else load_config(AlignmentSettings, judge)
    loaded = add_judged(load_vsr(data), labels)
    click.echo(f"judge      {settings.describe()}")
    for reason, number in loaded.drops.counts.items():
        click.echo(f"not used   {number} {reason}")
    found = compare_with_people(open_judge(settings, out), loaded, out)
    for metric in found.metrics:
        if metric.measure in _SHOWN:
            click.echo(f"{metric.measure}: {describe_metric(metric)}, n = {metric.n:,}")
    click.echo(f"report: {found.report}")


def compare_with_people(judge: Judge, loaded: LoadedRows, out: Path) -> Calibration:
    """Ask a judge about all reasonings that people judged, and measure their agreement.

    What people were not asked about, and what gives no answer, is not asked.
    """
    asked = list(_list_asked(loaded.rows))
    if not asked:
        raise DataError("people judged none of these reasonings")
    verdicts = judge_all(judge, [question for _, question in asked])
    rows = [_add_verdict(row, found) for (row, _), found in zip(asked, verdicts, strict=True)]
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{judge.name}.jsonl"
    write_verdicts(path, rows)
    return measure_recorded(read_recorded(path), path, out=out)


def _list_asked(rows: Sequence[VisualRow]) -> Iterator[tuple[VerdictRow, Question]]:
    """Yield each reasoning with people's label, and what a judge is asked about it."""
    for row in rows:
        example = make_example(
            [Message("user", _PROMPT + row.text)],
            cluster=row.cluster,
            fields={"statement": row.text},
        )
        for number, one in enumerate(row.reasonings):
            answer = _read_answer(row, one)
            if one.aligns is None or answer is None:
                continue
            label = ALIGNED if one.aligns else NOT_ALIGNED
            known = VerdictRow(f"{row.id} {number}", row.cluster, "", label, None, "not asked")
            yield known, ask_about(example, one.text, answer)


def _read_answer(row: VisualRow, one: Reasoning) -> str | None:
    return _ANSWERS.parse(row.answer if one.answer is None else one.answer).label


def _add_verdict(row: VerdictRow, found: Verdict | NoVerdict) -> VerdictRow:
    is_silent = isinstance(found, NoVerdict)
    return VerdictRow(
        item_id=row.item_id,
        cluster=row.cluster,
        subset=row.subset,
        label=row.label,
        verdict=None if is_silent else ALIGNED if found.label == ALIGNED else NOT_ALIGNED,
        cause=found.cause if is_silent else "",
    )


if __name__ == "__main__":
    main(judge_reasoning)
