"""Calibrating a judge: ask it what people decided already, measure, write files and the report.

A calibration that was interrupted goes on from the replies that are in its folder.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from groupwise.core import (
    EvaluationError,
    RunFolder,
    derive_seed,
    digest_file,
    dump_config,
    seed_everything,
    write_json,
)
from groupwise.evaluation.predictions import Language
from groupwise.judge_calibration.asking import (
    ReportProgress,
    ask_items,
    check_labels,
    list_askings,
)
from groupwise.judge_calibration.building import (
    build_judge,
    check_prompt,
    find_prompt,
    list_labels,
    load_responder,
)
from groupwise.judge_calibration.config import JudgeConfig
from groupwise.judge_calibration.measures import (
    JudgeMeasures,
    list_both_orders,
    measure_judge,
)
from groupwise.judge_calibration.rated import RatedItems
from groupwise.judge_calibration.recorded import RecordedVerdicts
from groupwise.judge_calibration.report import write_judge_report
from groupwise.judge_calibration.rows import VerdictRow, count_causes, write_verdicts
from groupwise.judges import GenerativeJudge, Judge, LogitJudge, ReplyCache

RECIPE = "judge calibrate"


@dataclass(frozen=True, slots=True)
class CalibrationPlan:
    """What a calibration would ask.

    Attributes:
        judge: its name.
        num_items: rated items.
        subsets: number of items by subset.
        drops: rows that are not used, by reason.
        num_questions: verdicts wanted: items, by orders, by repeats.
        num_calls: requests to the model, if none is in the cache and none fails.
        first_prompt: the first question as the model would see it; None for a rule.
    """

    judge: str
    num_items: int
    subsets: Mapping[str, int]
    drops: Mapping[str, int]
    num_questions: int
    num_calls: int
    first_prompt: str | None


@dataclass(frozen=True, slots=True)
class Calibration:
    """A calibration that has ended.

    Attributes:
        measures: what was measured.
        report: the page.
        causes: why there was no verdict, by how often.
        num_calls: requests made now.
        num_inconsistent_pairs: pairs with another verdict, or none, in the other order.
    """

    measures: JudgeMeasures
    report: Path
    causes: Mapping[str, int]
    num_calls: int
    num_inconsistent_pairs: int


def plan_calibration(
    config: JudgeConfig, rated: RatedItems, *, num_repeats: int = 1
) -> CalibrationPlan:
    """Check judge and data against each other and count what would be asked; asks nothing.

    Raises:
        JudgeError: if the prompt is not there, or an item lacks a text for it.
        EvaluationError: if the judge's labels are not those of the data.
    """
    _check_repeats(num_repeats)
    prompt = find_prompt(config, are_pairs=rated.are_pairs)
    labels = list_labels(config, are_pairs=rated.are_pairs)
    check_labels(labels, rated)
    check_prompt(prompt, rated)
    askings = list_askings(rated)
    num_questions = len(askings) * (1 if config.is_deterministic else num_repeats)
    is_swapped = config.kind == "logit" and not rated.are_pairs
    has_options = prompt is not None and "options" in prompt.places
    calls_each = 0 if prompt is None else 2 if is_swapped and has_options else 1
    options = " / ".join(labels)
    return CalibrationPlan(
        judge=config.title,
        num_items=len(rated.items),
        subsets=dict(sorted(Counter(item.subset for item in rated.items).items())),
        drops=rated.drops.counts,
        num_questions=num_questions,
        num_calls=num_questions * calls_each,
        first_prompt=prompt.render(askings[0].question.texts, options=options) if prompt else None,
    )


def calibrate_judge(
    config: JudgeConfig,
    rated: RatedItems,
    source: Path,
    *,
    out: Path,
    num_repeats: int = 1,
    report_progress: ReportProgress | None = None,
) -> Calibration:
    """Ask the judge about every item and measure it.

    Writes ``manifest.json``, ``verdicts.jsonl``, ``calibration.json`` and ``report.html`` into
    ``out``, and keeps the model's replies in ``out/cache``.

    Args:
        config: of the judge.
        rated: items of ``source``.
        source: where they are from; its digest goes into the manifest.
        out: folder; made if missing.
        num_repeats: how often each question is asked, for self-consistency; once if the judge is
            deterministic.
        report_progress: called with the numbers of finished and of all questions.

    Raises:
        JudgeError: if too many questions had no verdict; the rest is not asked.
        EvaluationError: if the judge's labels are not those of the data.
        RunError: if another process works in the folder, or it cannot be written.
    """
    plan_calibration(config, rated, num_repeats=num_repeats)
    seed = derive_seed(0, RECIPE)
    folder = RunFolder(out)
    with folder.lock():
        folder.write_manifest(
            recipe=RECIPE,
            config={"judge": dump_config(config), "num_repeats": num_repeats},
            inputs={"data": digest_file(source)},
            seed=seed,
        )
        seed_everything(seed)
        judges = _build_judges(config, rated, out, num_repeats)
        rows = ask_items(judges, rated, report_progress=report_progress)
        return _write_results(config, rated, judges, rows, out)


def _check_repeats(num_repeats: int) -> None:
    if num_repeats < 1:
        raise EvaluationError("nothing would be asked", got=f"{num_repeats} repeats", expected="1+")


def _build_judges(
    config: JudgeConfig, rated: RatedItems, out: Path, num_repeats: int
) -> list[Judge]:
    """Return one judge per repeat, each with replies of its own: a cached reply is no new one."""
    responder = load_responder(config)
    judges: list[Judge] = []
    for repeat in range(1 if config.is_deterministic else num_repeats):
        cache = ReplyCache(out / "cache" / f"replies-{repeat}.sqlite") if responder else None
        judges.append(build_judge(config, responder, are_pairs=rated.are_pairs, cache=cache))
    return judges


def _write_results(
    config: JudgeConfig,
    rated: RatedItems,
    judges: list[Judge],
    rows: list[VerdictRow],
    out: Path,
) -> Calibration:
    measures = measure_judge(rows, judge=config.title, is_deterministic=config.is_deterministic)
    asked = [judge.report() for judge in judges if isinstance(judge, GenerativeJudge | LogitJudge)]
    num_calls = sum(int(str(one["num_calls"])) for one in asked)
    facts: dict[str, Any] = {
        "version": judges[0].version,
        "describe": dict(judges[0].describe()),
        "kind_of_items": "pairs" if rated.are_pairs else "answers",
        "num_items": len(rated.items),
        "drops": rated.drops.to_json(),
        "num_repeats": len(judges),
        "is_deterministic": config.is_deterministic,
        "asked": asked,
    }
    return _write_files(measures, rows, facts, out, num_calls=num_calls, language=config.language)


def measure_recorded(recorded: RecordedVerdicts, source: Path, *, out: Path) -> Calibration:
    """Measure a judge by verdicts that it gave before; nothing is asked and no model is needed.

    Writes the same files as ``calibrate_judge``.

    Args:
        recorded: the verdicts of ``source``.
        source: where they are from; its name is the judge's, its digest the version.
        out: folder; made if missing.

    Raises:
        RunError: if another process works in the folder, or it cannot be written.
    """
    name = source.stem.replace("/", "-")
    version = digest_file(source)
    folder = RunFolder(out)
    with folder.lock():
        folder.write_manifest(
            recipe=RECIPE, config={"verdicts": source.name}, inputs={"data": version}, seed=0
        )
        rows = list(recorded.rows)
        measures = measure_judge(rows, judge=name, annotators=recorded.annotators)
        facts: dict[str, Any] = {
            "version": version,
            "describe": {"kind": "recorded", "file": source.name},
            "kind_of_items": "pairs" if any(row.order for row in rows) else "answers",
            "num_items": len({row.item_id for row in rows}),
            "drops": recorded.drops.to_json(),
            "num_repeats": 1 + max(row.repeat for row in rows),
            "is_deterministic": False,
            "asked": [],
        }
        return _write_files(measures, rows, facts, out, num_calls=0)


def _write_files(
    measures: JudgeMeasures,
    rows: list[VerdictRow],
    facts: Mapping[str, Any],
    out: Path,
    *,
    num_calls: int,
    language: Language = "en",
) -> Calibration:
    causes = count_causes(rows)
    write_verdicts(out / "verdicts.jsonl", rows)
    both = list_both_orders(rows)
    result: dict[str, Any] = {
        "judge": measures.judge,
        "labels": list(measures.labels),
        **facts,
        "causes_of_no_verdict": dict(causes),
        "num_pairs_in_both_orders": len(both),
        "num_inconsistent_pairs": sum(one.verdict != two.verdict for one, two in both),
        "metrics": [asdict(metric) for metric in measures.metrics],
    }
    write_json(out / "calibration.json", result)
    report = write_judge_report(out, measures, rows, result, language=language)
    return Calibration(measures, report, causes, num_calls, result["num_inconsistent_pairs"])
