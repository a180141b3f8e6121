"""The page about a calibrated judge, and what a reader must know before its numbers.

Lays out what was measured; it computes nothing and changes no number.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from groupwise.evaluation.metrics import Metric
from groupwise.evaluation.predictions import Language, Prediction
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
from groupwise.judge_calibration.measures import JudgeMeasures
from groupwise.judge_calibration.rows import VerdictRow, split_subsets

HIGH_FLIP_RATE = 0.1


def list_notices(measures: JudgeMeasures, facts: Mapping[str, Any]) -> list[Statement]:
    """Return the notices of the whole data, the gravest first."""
    found = {m.measure: m for m in measures.metrics if m.split == "all"}
    notices = [*_list_notices(found), *_note_drops(facts["drops"])]
    return sorted(notices, key=lambda notice: LEVELS.index(notice.level))


def _note(kind: str, level: Level, **values: object) -> Statement:
    return Statement(kind, values, level, "calibration.json")


def _list_notices(found: Mapping[str, Metric]) -> Iterator[Statement]:
    kappa, rate = found.get("kappa"), found.get("no_verdict_rate")
    flips, bias = found.get("flip_rate"), found.get("length_bias")
    if kappa is not None and kappa.low <= 0:
        kind = "judge.worse_than_chance" if kappa.high < 0 else "judge.not_above_chance"
        yield _note(kind, "error", value=kappa.value, low=kappa.low, high=kappa.high)
    if rate is not None and rate.value > 0:
        yield _note("judge.no_verdict", "warning", rate=rate.value)
    if flips is not None and flips.value > HIGH_FLIP_RATE:
        yield _note("judge.flips", "warning", rate=flips.value)
    if bias is not None and (bias.low > 0 or bias.high < 0):
        kind = "judge.prefers_longer" if bias.value > 0 else "judge.prefers_shorter"
        yield _note(kind, "warning", value=bias.value)
    if "agreement" not in found:
        yield _note("judge.silent", "error")


def _note_drops(drops: Mapping[str, Any]) -> Iterator[Statement]:
    if drops["total"]:
        reasons = ", ".join(f"{number} {name}" for name, number in drops["counts"].items())
        yield _note("judge.drops", "info", num=drops["total"], reasons=reasons)


NAME = "report"
PARTS: Mapping[str, tuple[str, ...]] = {
    "agreement": (
        "agreement",
        "kappa",
        "right_in_both_orders",
        "right_on_balance",
        "agreement_unflipped",
        "no_verdict_rate",
        "agreement_each",
        "people_alpha",
    ),
    "position": ("flip_rate", "first_position", "option_flip_rate"),
    "length": (
        "longer_judge",
        "longer_people",
        "length_bias",
        "agreement_if_longer",
        "agreement_if_shorter",
    ),
    "consistency": ("self_consistency", "ece", "brier"),
}
"""The measures of each part of the page, by its name in the vocabulary."""


def write_judge_report(
    out: Path,
    measures: JudgeMeasures,
    rows: Sequence[VerdictRow],
    facts: Mapping[str, Any],
    *,
    language: Language = "en",
) -> Path:
    """Write ``report.html`` and ``report.md`` into ``out``.

    Returns:
        The path of the HTML.
    """
    phrases = Phrases(language, own=Path(__file__).with_name("phrases.yaml"))
    html, _ = write_page(_lay_out(measures, rows, facts, phrases), out, name=NAME)
    return html


def _lay_out(
    measures: JudgeMeasures, rows: Sequence[VerdictRow], facts: Mapping[str, Any], phrases: Phrases
) -> Page:
    notices = list_notices(measures, facts)
    by_subset: dict[str, dict[str, Metric]] = {}
    for metric in measures.metrics:
        by_subset.setdefault(metric.split, {})[metric.measure] = metric
    said = phrases.say("judge_footer", file="calibration.json", verdicts="verdicts.jsonl")
    return Page(
        title=phrases.say("judge_title", judge=measures.judge),
        lead=_describe_data(facts, phrases),
        language=phrases.language,
        notices=tuple(Notice(one.level, phrases.say(one), one.source) for one in notices),
        checked=phrases.say("judge_checked"),
        parts=(
            *_list_parts(by_subset, phrases),
            *_show_confusion(measures, rows, phrases),
            _show_facts(facts, phrases),
        ),
        footer=(Block(said, "plain"),),
    )


def _describe_data(facts: Mapping[str, Any], phrases: Phrases) -> str:
    are_pairs = facts["kind_of_items"] == "pairs"
    text = phrases.say("judged_pairs" if are_pairs else "judged_answers", num=facts["num_items"])
    if facts["num_repeats"] > 1:
        text += phrases.say("judged_times", num=facts["num_repeats"])
    return f"{text} · {phrases.say('version')} {mark_code(facts['version'][:8])}"


def _list_parts(by_subset: Mapping[str, Mapping[str, Metric]], phrases: Phrases) -> Iterator[Part]:
    """Yield a table per part with the columns that there are numbers for."""
    known = {name for found in by_subset.values() for name in found}
    for name, names in PARTS.items():
        columns = {one: phrases.title("judge_measures", one) for one in names if one in known}
        if columns:
            table = tabulate_metrics(by_subset.items(), columns, head=phrases.say("subset"))
            lead = Block(phrases.say(f"{name}_lead"))
            yield Part(name, phrases.say(f"{name}_title"), (lead, table))


def _show_confusion(
    measures: JudgeMeasures, rows: Sequence[VerdictRow], phrases: Phrases
) -> Iterator[Part]:
    if len(measures.labels) > 1:
        said = [_to_prediction(row) for row in split_subsets(rows)["all"]]
        table = tabulate_confusion("", said, measures.labels, phrases)
        yield Part("confusion", phrases.say("people_and_judge"), (table,))


def _to_prediction(row: VerdictRow) -> Prediction:
    return Prediction(
        example_id=row.item_id,
        cluster=row.cluster,
        split="rated",
        policy="judge",
        label=row.label,
        predicted=row.verdict,
        reason=row.cause,
    )


def _show_facts(facts: Mapping[str, Any], phrases: Phrases) -> Part:
    rows = [(mark_code(name), str(value)) for name, value in facts["describe"].items()]
    rows.append((phrases.say("items_digest"), mark_code(facts["metrics"][0]["split_digest"])))
    if facts["num_pairs_in_both_orders"]:
        part, of = facts["num_inconsistent_pairs"], facts["num_pairs_in_both_orders"]
        rows.append((phrases.say("inconsistent"), phrases.say("of", part=part, all=of)))
    for name, number in facts["causes_of_no_verdict"].items():
        rows.append(
            (
                phrases.say("cause", name=phrases.translate(name)),
                phrases.say("num_calls", num=number),
            )
        )
    table = Table("", phrases.say_each("setting", "value"), tuple(rows), kind="wrap")
    return Part("facts", phrases.say("measured"), (table,))
