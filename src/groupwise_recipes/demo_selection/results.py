"""What the report shows of the cells: policies, measures, how lists are used, what GRPO changed.

A policy is a way of choosing demonstrations; a measure is of a number of shots.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pydantic import TypeAdapter

from groupwise.core import Example, read_json
from groupwise.evaluation.metrics import Metric
from groupwise.evaluation.predictions import Measure, Policies, PolicyKind, Prediction, RunPolicy
from groupwise.evaluation.report.page import Section, Table, tabulate_policies
from groupwise.evaluation.report.phrases import DASH, LANGUAGES, Phrases, format_share, load_phrases
from groupwise.rewards import VqaParser
from groupwise_recipes.demo_selection.cells import Cell, CellRow
from groupwise_recipes.demo_selection.demonstration_use import UseFigure
from groupwise_recipes.demo_selection.evaluation import REVERSED
from groupwise_recipes.demo_selection.pointwise import POINTWISE

PHRASES = Path(__file__).with_name("phrases.yaml")
_FIGURES = TypeAdapter(tuple[UseFigure, ...])
MEAN = "vqa_mean"
_KINDS: Mapping[str, PolicyKind] = {
    "oracle": "bound",
    "rce": "trained",
    "grpo": "trained",
    f"grpo{REVERSED}": "trained",
}


_WAYS = (
    *("none", "random", "nearest_text", "nearest_picture", "nearest_both", "mmices"),
    *("knn_few_shot", POINTWISE, f"{POINTWISE}{REVERSED}", "oracle"),
    *("rce", f"grpo{REVERSED}", "grpo"),
)
"""Ways of choosing demonstrations in the order of reports; others are compared with the last."""


def name_measure(shots: int) -> str:
    """Return the name of VQA accuracy at so many shots."""
    return f"vqa_{shots}"


def list_measures(shots: Iterable[int]) -> tuple[Measure, ...]:
    """Return the measures, the mean over shots first."""
    return (
        Measure(MEAN, "VQA accuracy, mean over shots", "VQA 准确率（各示例数平均）"),
        *(
            Measure(
                name_measure(number),
                f"VQA accuracy, {number} shot{'s'[: number != 1]}",
                f"VQA 准确率（{number} 个示例）",
            )
            for number in shots
        ),
    )


def list_policies(systems: Iterable[str]) -> list[RunPolicy]:
    """Return what is known of the ways of choosing that were evaluated, in the order of reports."""
    known, said = set(systems), load_phrases(PHRASES)
    found: list[RunPolicy] = []
    for name in (name for name in _WAYS if name in known):
        kind = _KINDS.get(name, "baseline")
        step = name.removesuffix(REVERSED) if kind == "trained" else None
        title, note = said[f"way.{name}"], said[f"note.{name}"]
        policy = RunPolicy(
            name=name,
            title=title["en"],
            title_zh=title["zh"],
            note=note["en"],
            note_zh=note["zh"],
            kind=kind,
            step=step,
            trained_from="rce" if step == "grpo" and "rce" in known else None,
            trained_on=("anchors", "validation") if step else (),
            weights=f"{step}/policy" if step else None,
        )
        found.append(policy)
    return found


def make_predictions(
    test: Sequence[Example], cells: Mapping[Cell, Sequence[CellRow]], *, shots: Sequence[int]
) -> list[Prediction]:
    """Return a prediction of each system for each test item, with a score for each number of shots.

    The answer that is shown is that of the most shots. An item of which an evaluation failed has no
    score there, and none in the mean.
    """
    found: dict[str, dict[int, dict[str, CellRow]]] = {}
    for cell, rows in cells.items():
        own = {row.id: row for row in rows}
        for number in (cell.shots,) if cell.shots else shots:
            found.setdefault(cell.system, {})[number] = own
    return [
        _predict(system, item, {number: own[item.id] for number, own in by_shots.items()}, shots)
        for system, by_shots in found.items()
        for item in test
    ]


def _predict(
    system: str, item: Example, rows: Mapping[int, CellRow], shots: Sequence[int]
) -> Prediction:
    last = rows[max(rows)]
    scores = {
        name_measure(number): row.accuracy
        for number, row in rows.items()
        if row.accuracy is not None
    }
    if len(scores) == len(shots):
        scores[MEAN] = sum(scores.values()) / len(shots)
    said, reason = _read(item, last.answer)
    return Prediction(
        example_id=item.id,
        cluster=item.cluster,
        split="test",
        policy=system,
        label=str(item.label),
        predicted=said,
        reason=reason,
        text=last.answer or "",
        pictures=tuple(str(picture.path) for picture in item.pictures),
        picture_digests=tuple(picture.digest for picture in item.pictures),
        fields={"question": item.fields["question"], "demonstrations": list(last.demos)},
        scores=scores,
    )


def _read(item: Example, answer: str | None) -> tuple[str | None, str]:
    """Return what an answer says, in the label's own spelling if it is that, or why nothing."""
    if answer is None:
        return None, "the evaluation failed"
    parser = VqaParser()
    found = parser.parse(answer, item)
    if found.label is not None and parser.measure(item, answer) == 1.0:
        return str(item.label), ""
    return found.label, found.reason


def make_sections(
    metrics: Sequence[Metric],
    cells: Mapping[Cell, Sequence[CellRow]],
    *,
    use: Path,
    shots: Sequence[int],
) -> list[Section]:
    """Return the sections of a run's report, by language."""
    by_shots = [one for one in metrics if one.measure.startswith("vqa_")]
    policies = Policies(tuple(list_policies({one.policy for one in by_shots})))
    figures = _FIGURES.validate_python(read_json(use, list)) if use.is_file() else ()
    found: list[Section] = []
    for language in LANGUAGES:
        phrases = Phrases(language, policies=policies, own=PHRASES)
        found.append(_write_by_shots(by_shots, phrases))
        if any(cell.system == "grpo" for cell in cells):
            found.append(_write("changed", _tabulate_changes(cells, shots, phrases), phrases))
        if figures:
            found.append(_write("use", _tabulate_use(figures, phrases), phrases))
    return found


def _write(name: str, table: Table, phrases: Phrases, *, is_first: bool = False) -> Section:
    title, lead = phrases.say_each(name, f"{name}_lead")
    return Section(title, lead, (table,), is_first, language=phrases.language)


def _write_by_shots(shown: Sequence[Metric], phrases: Phrases) -> Section:
    """Return the measures by number of shots, with which the report begins."""
    columns: dict[str, str] = {}
    for measure in sorted({one.measure for one in shown}):
        shots = measure.removeprefix("vqa_")
        title = phrases.say("mean") if measure == MEAN else phrases.count(int(shots), "shot")
        columns[measure] = title
    table = tabulate_policies(shown, columns, phrases=phrases)
    return _write("by_shots", table, phrases, is_first=True)


def _tabulate_use(figures: Sequence[UseFigure], phrases: Phrases) -> Table:
    rows: list[tuple[str, ...]] = []
    for one in figures:
        title = phrases.title("situations", one.situation)
        if one.num_shots:
            title = phrases.say("use_row", situation=title, num=one.num_shots)
        counts = (one.num_right, one.num_right_reversed, one.num_changed)
        shares = (_share(count, one.num_asked) for count in counts)
        rows.append((title, *shares, f"{one.num_asked:,}"))
    names = ("demonstrations", "right", "right_reversed", "use_changed")
    return Table("", (*phrases.say_each(*names), "n"), tuple(rows))


def _tabulate_changes(
    cells: Mapping[Cell, Sequence[CellRow]], shots: Sequence[int], phrases: Phrases
) -> Table:
    by_system = {(cell.system, cell.shots): rows for cell, rows in cells.items()}
    rows: list[tuple[str, ...]] = []
    for number in shots:
        ours = by_system["grpo", number]
        before, turned = by_system["rce", number], by_system[f"grpo{REVERSED}", number]
        changed = (
            sum(one.demos != other.demos for one, other in zip(ours, before, strict=True)),
            sum(one.answer != other.answer for one, other in zip(ours, before, strict=True)),
            sum(one.answer != other.answer for one, other in zip(ours, turned, strict=True)),
        )
        shares = (_share(count, len(ours)) for count in changed)
        rows.append((phrases.count(number, "shot"), *shares, f"{len(ours):,}"))
    head = phrases.say_each("lists_changed", "answers_changed", "answers_changed_reversed")
    return Table("", ("", *head, "n"), tuple(rows))


def _share(number: int, total: int) -> str:
    return format_share(number / total) if total else DASH
