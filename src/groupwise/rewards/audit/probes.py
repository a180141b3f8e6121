"""The probes: what each kind of text may earn, and which texts earn more.

A text that the metric calls invalid may earn nothing; any other that is not the reference must
earn less than it. Labels that stand together are tried in both orders: where the last (or the
first) of them counts, one order is a right answer, but the other is not.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from groupwise.core import Example
from groupwise.rewards.audit import near_misses, texts
from groupwise.rewards.audit.case import Item, Measure, relabel
from groupwise.rewards.audit.rows import (
    TOLERANCE,
    AuditRow,
    Evidence,
    Outcome,
    Rule,
    ScoreTable,
    point_at,
)

Bar = Literal["nothing", "less", "less unless right", "no more than wrong", "as measured"]

_MUST: dict[Bar, str] = {
    "nothing": "must earn 0",
    "less": "must earn less than the reference, and 0 where the metric calls it invalid",
    "less unless right": (
        "must earn less than the reference, and 0 where the metric calls it invalid, unless the "
        "metric calls it right"
    ),
    "no more than wrong": "must earn no more than a wrong answer, and 0 where it is invalid",
    "as measured": "must earn no more than a wrong answer, unless the metric calls it right",
}
_MUST_COMMIT = "must earn less in one of both orders, and 0 where the metric calls it invalid"

REFERENCE = Rule(
    "reward/reference-below-maximum", "error", "the reference answer", "must earn 1, the maximum"
)
UNSCORED_REFERENCE = Rule(
    "reward/reference-unscored", "error", "the reference answer", "must have a score"
)
UNSCORED = Rule(
    "reward/unscored-answers",
    "warning",
    "answers that are not the reference",
    "must earn 0, not go without a score, where the reference has one",
)
OUT_OF_RANGE = Rule("reward/out-of-range", "error", "every score", "must be in [0, 1] or None")
RAISES = Rule("reward/raises", "error", "every answer", "must be scored without an exception")


@dataclass(frozen=True, slots=True)
class Probe:
    """A kind of text and the bar it is compared with."""

    rule: Rule
    write: Callable[[Item], Iterable[str]]
    bar: Bar


@dataclass(frozen=True, slots=True)
class Hedge:
    """A kind of text that has every label, in two orders."""

    rule: Rule
    write: Callable[[Item], Iterator[tuple[str, str]]]


def _probe(
    name: str, title: str, write: Callable[[Item], Iterable[str]], bar: Bar = "less"
) -> Probe:
    return Probe(Rule(f"reward/{name}", "error", title, _MUST[bar]), write, bar)


PROBES = (
    _probe("pays-empty", "an empty answer", lambda _: [""], "nothing"),
    _probe("pays-white-space", "white space", lambda _: texts.WHITE_SPACE, "nothing"),
    _probe("pays-garbage", "words that answer nothing", lambda _: texts.GARBAGE),
    _probe("pays-negation", "the right label denied", texts.write_negations),
    _probe("pays-echo", "the prompt echoed back", texts.write_echo),
    _probe(
        "pays-empty-format",
        "the format without contents",
        texts.write_empty_format,
        "less unless right",
    ),
    _probe(
        "pays-broken-answer", "the right answer truncated", texts.write_broken, "less unless right"
    ),
    _probe("pays-long-output", "very long output", texts.write_long, "less unless right"),
    Probe(
        Rule(
            "reward/length-is-free",
            "warning",
            "the right answer among 2000 words",
            _MUST["less"],
        ),
        texts.write_padded,
        "less",
    ),
    _probe(
        "pays-wrong-format",
        "the right answer in the wrong format",
        texts.write_wrong_format,
        "less unless right",
    ),
    _probe("pays-wrong-answer", "a wrong answer in the right format", lambda item: item.wrong),
    *(
        _probe(f"pays-{name}", title, write, "as measured")
        for name, title, write in (
            ("near-number", "a number that is nearly right", near_misses.write_near_numbers),
            ("other-unit", "the right number with another unit", near_misses.write_near_units),
            ("near-words", "the right words, altered", near_misses.write_near_words),
            (
                "near-form",
                "the right form, a part of it wrong",
                near_misses.write_near_forms,
            ),
            ("several-answers", "several in the place of one", near_misses.write_hedges_inside),
            ("mention", "a wrong answer beside the right one", near_misses.write_mentions),
        )
    ),
    _probe(
        "pays-injection",
        "orders to the judge, forged verdicts",
        texts.write_injections,
        "no more than wrong",
    ),
)

_BY_FORM = {probe.rule.name for probe in PROBES if probe.bar == "as measured"}

HEDGES = (
    Hedge(
        Rule("reward/pays-label-stuffing", "error", "several labels in one line", _MUST_COMMIT),
        texts.pair_labels,
    ),
    Hedge(
        Rule("reward/pays-label-list", "error", "a list of every label", _MUST_COMMIT),
        texts.pair_label_lists,
    ),
)

RULES = (
    *(REFERENCE, UNSCORED_REFERENCE),
    *(probe.rule for probe in (*PROBES, *HEDGES)),
    *(OUT_OF_RANGE, RAISES, UNSCORED),
)


def run_probes(items: Sequence[Item], measure: Measure, table: ScoreTable) -> list[AuditRow]:
    """Return the rows of the reference and of every probe that these answers have a place for."""
    table.fill((item.example, item.reference) for item in items)
    table.fill((i.example, text) for i in items for p in PROBES for text in p.write(i))
    pairs = [(i.example, pair) for i in items for hedge in HEDGES for pair in hedge.write(i)]
    table.fill((example, text) for example, pair in pairs for text in pair)
    rows = [_run_probe(probe, items, measure, table) for probe in PROBES]
    return [
        *check_references(items, table),
        *(row for row in rows if row.num_tried or row.name not in _BY_FORM),
        *(_run_hedge(hedge, items, measure, table) for hedge in HEDGES),
    ]


def check_references(items: Sequence[Item], table: ScoreTable) -> list[AuditRow]:
    """Return the rows of the reference answers: they earn 1, and they have a score."""
    low: list[Evidence] = []
    unscored: list[Evidence] = []
    outcomes = [table.look_up(item.example, item.reference) for item in items]
    for item, outcome in zip(items, outcomes, strict=True):
        if outcome.value is None:
            unscored.append(point_at(item.example, item.reference, outcome, "it has no score"))
        elif outcome.value < 1.0 - TOLERANCE:
            low.append(point_at(item.example, item.reference, outcome, "it is the right answer"))
    return [REFERENCE.make_row(outcomes, low), UNSCORED_REFERENCE.make_row(outcomes, unscored)]


def check_outcomes(table: ScoreTable, references: Mapping[str, str]) -> list[AuditRow]:
    """Return the rows about all that was scored: the range, exceptions, missing scores.

    An answer should have a score where the reference has one, or where there are no references.
    """
    rows = table.list_rows()
    outcomes = [outcome for _, _, outcome in rows]
    known = {
        e.id for e, text, o in rows if o.value is not None and references.get(e.id, text) == text
    }

    def collect(rule: Rule, why: str, is_wrong: Callable[[Example, str, Outcome], bool]):
        found = [point_at(e, text, o, why) for e, text, o in rows if is_wrong(e, text, o)]
        return rule.make_row(outcomes, found)

    return [
        collect(OUT_OF_RANGE, "it is outside [0, 1]", lambda e, t, o: o.problem == "range"),
        collect(RAISES, "the reward raised", lambda e, t, o: o.problem == "raised"),
        collect(
            UNSCORED,
            "it has no score",
            lambda e, text, o: (
                o.value is None and not o.problem and e.id in known and text != references.get(e.id)
            ),
        ),
    ]


def _run_probe(
    probe: Probe, items: Sequence[Item], measure: Measure, table: ScoreTable
) -> AuditRow:
    outcomes: list[Outcome] = []
    failures: list[Evidence] = []
    for item in items:
        for text in dict.fromkeys(probe.write(item)):
            if text == item.reference or (probe.bar != "nothing" and not text.strip()):
                continue
            outcome = table.look_up(item.example, text)
            why = _find_fault(probe.bar, item, text, outcome=outcome, measure=measure, table=table)
            outcomes.append(outcome)
            if why:
                failures.append(point_at(item.example, text, outcome, why))
    return probe.rule.make_row(outcomes, failures)


def _run_hedge(
    hedge: Hedge, items: Sequence[Item], measure: Measure, table: ScoreTable
) -> AuditRow:
    outcomes: list[Outcome] = []
    failures: list[Evidence] = []
    for item in items:
        for pair in hedge.write(item):
            found = [table.look_up(item.example, text) for text in pair]
            whys = [
                _find_fault("less", item, text, outcome=outcome, measure=measure, table=table)
                for text, outcome in zip(pair, found, strict=True)
            ]
            outcomes += found
            if any(_is_answer(item, text, measure) for text in pair):
                continue
            is_invalid = any(measure(item.example, text) is None for text in pair)
            if all(whys) or (is_invalid and any(whys)):
                text, outcome, why = next(
                    shown for shown in zip(pair, found, whys, strict=True) if shown[2]
                )
                failures.append(point_at(item.example, text, outcome, why))
    return hedge.rule.make_row(outcomes, failures)


def _is_answer(item: Item, text: str, measure: Measure) -> bool:
    """Whether the metric calls a text right here, and wrong if another label were the truth.

    Letters said twice are no hedge where answers are sets; what is right for all labels is one.
    """
    if measure(item.example, text) != 1.0:
        return False
    return not any(measure(relabel(item.example, name), text) for name in item.rivals)


def _find_fault(
    bar: Bar, item: Item, text: str, *, outcome: Outcome, measure: Measure, table: ScoreTable
) -> str:
    """Return what is wrong with what ``text`` earned; empty if nothing is."""
    if outcome.value is None or outcome.value <= TOLERANCE:
        return ""
    if bar == "nothing":
        return "it must earn 0"
    measured = measure(item.example, text)
    if bar == "as measured":
        return _find_excess(item, measured or 0.0, outcome.value, table)
    if measured is None:
        return "the metric calls it invalid, so it must earn 0"
    if bar == "less unless right" and measured >= 1.0 - TOLERANCE:
        return ""
    reference = table.look_up(item.example, item.reference).value
    if reference is not None and outcome.value > reference - TOLERANCE:
        return f"the reference earns no more ({reference:.3g})"
    worst = find_wrong_value(item, table)
    if bar == "no more than wrong" and outcome.value > worst + TOLERANCE:
        return f"a wrong answer earns {worst:.3g} without it"
    return ""


def _find_excess(item: Item, measured: float, value: float, table: ScoreTable) -> str:
    """Return by what a text earns more than the metric's share of the way to the reference."""
    worst = find_wrong_value(item, table)
    reference = table.look_up(item.example, item.reference).value
    if reference is None or reference <= worst + TOLERANCE:
        return ""  # this reward credits nothing; other rows say so
    if value <= worst + measured * (reference - worst) + TOLERANCE:
        return ""
    return f"the metric gives it {measured:.3g}, and a wrong answer earns {worst:.3g}"


def find_wrong_value(item: Item, table: ScoreTable) -> float:
    """Return the most that a wrong answer in the right format earns; 0 if there is none."""
    values = [table.look_up(item.example, text).value for text in item.wrong]
    return max((value for value in values if value is not None), default=0.0)
