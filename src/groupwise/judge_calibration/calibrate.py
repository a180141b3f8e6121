"""Calibrating a judge: ask it what people decided already, measure, write files and the report.

A calibration that was interrupted goes on from the replies that are in its folder.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from groupwise.core import (
    EvaluationError,
    JudgeError,
    RunFolder,
    derive_seed,
    digest_file,
    dump_config,
    seed_everything,
    write_json,
)
from groupwise.evaluation.metrics import Metric
from groupwise.evaluation.predictions import Language
from groupwise.evaluation.report.page import (
    Block,
    Notice,
    Page,
    Part,
    Table,
    tabulate_confusion,
    tabulate_metrics,
    write_page,
)
from groupwise.evaluation.report.phrases import LEVELS, Level, Phrases, Statement, mark_code
from groupwise.inference.opening import open_model
from groupwise.judge_calibration.measures import (
    JudgeMeasures,
    list_both_orders,
    make_prediction,
    measure_judge,
)
from groupwise.judge_calibration.rated import RatedItems
from groupwise.judge_calibration.verdicts import (
    RecordedVerdicts,
    ReportProgress,
    VerdictRow,
    ask_items,
    check_labels,
    list_askings,
    write_verdicts,
)
from groupwise.judges import GenerativeJudge, JudgeConfig, LogitJudge, ReplyCache, build_judge
from groupwise.judges.model import OPTIONS

RECIPE = "judge calibrate"
HIGH_FLIP_RATE = 0.1


@dataclass(frozen=True, slots=True)
class CalibrationPlan:
    """What a calibration would ask."""

    judge: str  # its name
    num_items: int  # rated items
    subsets: Mapping[str, int]  # number of items by subset
    drops: Mapping[str, int]  # rows that are not used, by reason
    num_questions: int  # verdicts wanted: items, by orders, by repeats
    num_calls: int  # requests to the model, if none is in the cache and none fails
    first_prompt: str | None  # the first question as the model would see it; None for a rule


@dataclass(frozen=True, slots=True)
class Calibration:
    """A calibration that has ended."""

    measures: JudgeMeasures
    report: Path  # the page
    causes: Mapping[str, int]  # why there was no verdict, by how often
    num_calls: int  # requests made now
    num_inconsistent_pairs: int  # with another verdict, or none, in the other order


def plan_calibration(
    config: JudgeConfig, rated: RatedItems, *, num_repeats: int = 1
) -> CalibrationPlan:
    """Check judge and data against each other and count what would be asked; asks nothing.

    Raises:
        JudgeError: if the prompt is not there, or an item lacks a text for it.
        EvaluationError: if the judge's labels are not those of the data.
    """
    if num_repeats < 1:
        raise EvaluationError("nothing would be asked", got=f"{num_repeats} repeats", expected="1+")
    prompt = config.find_prompt(are_pairs=rated.are_pairs)
    labels = config.list_labels(are_pairs=rated.are_pairs)
    check_labels(labels, rated)
    askings = list_askings(rated)
    needed = set(prompt.places if prompt is not None else ()) - {OPTIONS}
    lacking = {item.id: needed - set(question.texts) for item, _, question in askings}
    if prompt is not None and any(lacking.values()):
        raise JudgeError(
            f"{sum(map(bool, lacking.values()))} item(s) have no text for the prompt "
            f"{prompt.name!r}",
            got="no " + ", ".join(sorted(set[str]().union(*lacking.values()))),
            fix="give it in the data, or choose another prompt",
        )
    num_questions = len(askings) * (1 if config.is_deterministic else num_repeats)
    is_swapped = config.kind == "logit" and not rated.are_pairs
    calls_each = 0 if prompt is None else 2 if is_swapped and OPTIONS in prompt.places else 1
    texts, options = askings[0][2].texts, " / ".join(labels)
    return CalibrationPlan(
        judge=config.title,
        num_items=len(rated.items),
        subsets=dict(sorted(Counter(item.subset for item in rated.items).items())),
        drops=rated.drops.counts,
        num_questions=num_questions,
        num_calls=num_questions * calls_each,
        first_prompt=prompt.render(texts, options=options) if prompt else None,
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
        model = None if config.kind == "rule" else open_model(config)
        numbers = range(1 if config.is_deterministic else num_repeats)
        # Each repeat has replies of its own: a cached reply is no new one.
        paths = [out / "cache" / f"replies-{number}.sqlite" for number in numbers]
        judges = [
            build_judge(
                config, model, are_pairs=rated.are_pairs, cache=ReplyCache(path) if model else None
            )
            for path in paths
        ]
        rows = ask_items(judges, rated, report_progress=report_progress)
        measures = measure_judge(rows, judge=config.title, is_deterministic=config.is_deterministic)
        asked = [one.report() for one in judges if isinstance(one, GenerativeJudge | LogitJudge)]
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
        return _write_files(measures, rows, facts, out, language=config.language)


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
    version = digest_file(source)
    folder = RunFolder(out)
    with folder.lock():
        folder.write_manifest(
            recipe=RECIPE, config={"verdicts": source.name}, inputs={"data": version}, seed=0
        )
        rows = list(recorded.rows)
        measures = measure_judge(rows, judge=source.stem, annotators=recorded.annotators)
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
        return _write_files(measures, rows, facts, out)


def _write_files(
    measures: JudgeMeasures,
    rows: Sequence[VerdictRow],
    facts: Mapping[str, Any],
    out: Path,
    *,
    language: Language = "en",
) -> Calibration:
    silent = Counter(sorted(row.cause for row in rows if row.verdict is None))
    causes = dict(silent.most_common())
    write_verdicts(out / "verdicts.jsonl", rows)
    both = list_both_orders(rows)
    num_inconsistent = sum(one.verdict != two.verdict for one, two in both)
    result: dict[str, Any] = {
        "judge": measures.judge,
        "labels": list(measures.labels),
        **facts,
        "causes_of_no_verdict": causes,
        "num_pairs_in_both_orders": len(both),
        "num_inconsistent_pairs": num_inconsistent,
        "metrics": [asdict(metric) for metric in measures.metrics],
    }
    write_json(out / "calibration.json", result)
    phrases = Phrases(language, own=Path(__file__).with_name("phrases.yaml"))
    report, _ = write_page(_lay_out(measures, rows, result, phrases), out, name="report")
    num_calls = sum(one["num_calls"] for one in facts["asked"])
    return Calibration(measures, report, causes, num_calls, num_inconsistent)


def list_notices(measures: JudgeMeasures, drops: Mapping[str, Any]) -> list[Statement]:
    """Return what a reader must know before the numbers of the whole data, the gravest first."""
    found = {m.measure: m for m in measures.metrics if m.split == "all"}
    kappa, rate = found.get("kappa"), found.get("no_verdict_rate")
    flips, bias = found.get("flip_rate"), found.get("length_bias")
    notices: list[Statement] = []

    def note(kind: str, level: Level, **values: object) -> None:
        notices.append(Statement(f"judge.{kind}", values, level, "calibration.json"))

    if kappa is not None and kappa.low <= 0:
        kind = "worse_than_chance" if kappa.high < 0 else "not_above_chance"
        note(kind, "error", value=kappa.value, low=kappa.low, high=kappa.high)
    if rate is not None and rate.value > 0:
        note("no_verdict", "warning", rate=rate.value)
    if flips is not None and flips.value > HIGH_FLIP_RATE:
        note("flips", "warning", rate=flips.value)
    if bias is not None and (bias.low > 0 or bias.high < 0):
        kind = "prefers_longer" if bias.value > 0 else "prefers_shorter"
        note(kind, "warning", value=bias.value)
    if "agreement" not in found:
        note("silent", "error")
    if drops["total"]:
        reasons = ", ".join(f"{number} {name}" for name, number in drops["counts"].items())
        note("drops", "info", num=drops["total"], reasons=reasons)
    return sorted(notices, key=lambda notice: LEVELS.index(notice.level))


_PARTS = {
    "agreement": "agreement kappa right_in_both_orders right_on_balance agreement_unflipped "
    "no_verdict_rate agreement_each people_alpha",
    "position": "flip_rate first_position option_flip_rate",
    "length": "longer_judge longer_people length_bias agreement_if_longer agreement_if_shorter",
    "consistency": "self_consistency ece brier",
}
"""The measures of each part of the page, by its name in the vocabulary."""


def _lay_out(
    measures: JudgeMeasures, rows: Sequence[VerdictRow], facts: Mapping[str, Any], phrases: Phrases
) -> Page:
    """Return the page; it computes nothing and changes no number."""
    notices = list_notices(measures, facts["drops"])
    are_pairs = facts["kind_of_items"] == "pairs"
    lead = phrases.say("judged_pairs" if are_pairs else "judged_answers", num=facts["num_items"])
    if facts["num_repeats"] > 1:
        lead += phrases.say("judged_times", num=facts["num_repeats"])
    lead += f" · {phrases.say('version')} {mark_code(facts['version'][:8])}"
    said = phrases.say("judge_footer", file="calibration.json", verdicts="verdicts.jsonl")
    return Page(
        title=phrases.say("judge_title", judge=measures.judge),
        lead=lead,
        language=phrases.language,
        notices=tuple(Notice(one.level, phrases.say(one), one.source) for one in notices),
        checked=phrases.say("judge_checked"),
        parts=tuple(_list_parts(measures, rows, facts, phrases)),
        footer=(Block(said, "plain"),),
    )


def _list_parts(
    measures: JudgeMeasures, rows: Sequence[VerdictRow], facts: Mapping[str, Any], phrases: Phrases
) -> Iterator[Part]:
    """Yield tables of the measures that there are, by subset, then what was said, then facts."""
    by_subset: dict[str, dict[str, Metric]] = {}
    for metric in measures.metrics:
        by_subset.setdefault(metric.split, {})[metric.measure] = metric
    known = {name for found in by_subset.values() for name in found}
    for name, names in _PARTS.items():
        columns = {
            one: phrases.title("judge_measures", one) for one in names.split() if one in known
        }
        if columns:
            table = tabulate_metrics(by_subset.items(), columns, head=phrases.say("subset"))
            lead = Block(phrases.say(f"{name}_lead"))
            yield Part(name, phrases.say(f"{name}_title"), (lead, table))
    if len(measures.labels) > 1:
        table = tabulate_confusion("", map(make_prediction, rows), measures.labels, phrases)
        yield Part("confusion", phrases.say("people_and_judge"), (table,))
    told = [(mark_code(name), str(value)) for name, value in facts["describe"].items()]
    told.append((phrases.say("items_digest"), mark_code(facts["metrics"][0]["split_digest"])))
    if facts["num_pairs_in_both_orders"]:
        part, of = facts["num_inconsistent_pairs"], facts["num_pairs_in_both_orders"]
        told.append((phrases.say("inconsistent"), phrases.say("of", part=part, all=of)))
    for name, number in facts["causes_of_no_verdict"].items():
        cause = phrases.say("cause", name=phrases.translate(name))
        told.append((cause, phrases.say("num_calls", num=number)))
    table = Table("", phrases.say_each("setting", "value"), tuple(told), kind="wrap")
    yield Part("facts", phrases.say("measured"), (table,))
