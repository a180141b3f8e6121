"""Do training and evaluation count alike? Spellings of right and wrong answers, both ways.

A spelling is credited by the reward if it earns more than a wrong answer in the right format.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from groupwise.core import Example
from groupwise.rewards.audit import texts
from groupwise.rewards.audit.case import Item, Measure, RewardCase
from groupwise.rewards.audit.near_misses import replace_label
from groupwise.rewards.audit.probes import find_wrong_value
from groupwise.rewards.audit.rows import (
    TOLERANCE,
    AuditRow,
    Evidence,
    Outcome,
    Rule,
    ScoreTable,
    point_at,
)
from groupwise.rewards.reward import explain_unusable

UNUSABLE = Rule(
    "reward/unusable-example",
    "error",
    "every example",
    "must have a reference that answers can be compared with; fix the data or leave it out",
)
STRICTER = Rule(
    "reward/stricter-than-metric",
    "error",
    "spellings that the metric calls right",
    "must earn more than a wrong answer",
)
FRAMED = Rule(
    "reward/stricter-on-marks",
    "warning",
    "the right answer in quotation marks or stars, with a stop or a lead",
    "should earn more than a wrong answer, as the metric calls it right",
)
LAXER = Rule(
    "reward/laxer-than-metric",
    "error",
    "spellings that the metric calls wrong or invalid",
    "must earn no more than a wrong answer",
)
MERGED = Rule(
    "reward/labels-count-as-one",
    "warning",
    "labels that differ in marks alone",
    "must not be right for each other, unless they mean the same",
)
RULES = (UNUSABLE, STRICTER, FRAMED, LAXER, MERGED)

_MARKS = (
    "{}.",
    "{}。",
    "{}!",
    "{},",
    '"{}"',
    "'{}'",
    "“{}”",
    "({})",
    "**{}**",
    "`{}`",
    "```\n{}\n```",
    "Answer: {}",
    "The answer is {}.",
    "Classification: {}",
    "答案：{}",
    "答案是{}。",
    "#### {}",
    "\\boxed{{{}}}",
    "${}$",
    "{}\nConfidence: 0.9",
)
"""What may stand around an answer and says nothing: a policy loses nothing by leaving it out."""
_FRAMES = (
    *(" {}", "{}\n", "\n\n{}  "),
    *_MARKS,
    "the {}",
    "{} it is",
    "<answer>{}</answer>",
    "<answer> {}\n</answer>",
    "<think></think><answer>{}</answer>",
)
_FULL_WIDTH = str.maketrans({":": "：", ".": "。", ",": "，", "(": "（", ")": "）", "-": "－"})
_NUMBER = re.compile(r"-?\d+")
_COMMA_OF_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_AROUND = " .,;:!?。，；：！？'\"“”‘’()[]*`"


def write_spellings(text: str) -> Iterator[str]:
    """Return other ways to write an answer, each once and without the text itself."""
    found = dict.fromkeys(_list_spellings(text))
    yield from (spelling for spelling in found if spelling != text)


def _list_spellings(text: str) -> Iterator[str]:
    yield from (text.upper(), text.lower(), text.title(), text.capitalize(), text.swapcase())
    yield from (frame.format(text) for frame in _FRAMES)
    yield text.translate(_FULL_WIDTH)
    for separator in (" ", "", "_", " - ", "‑", "–"):
        yield text.replace("-", separator)
    yield text.replace(" ", "")
    yield text.replace(" ", "  ")
    if _NUMBER.fullmatch(text):
        yield from (f"{text}.0", f"{text}.", f"+{text}", f"0{text}", f"{int(text):,}", f"${text}")


def compare_criteria(items: Sequence[Item], measure: Measure, table: ScoreTable) -> list[AuditRow]:
    """Return three rows: where the reward is stricter than the metric, and where it is laxer.

    That marks around the right answer earn nothing is no error: the plain answer earns all.
    """
    table.fill((item.example, text) for item in items for text in _list_texts(item))
    right: list[Outcome] = []
    other: list[Outcome] = []
    stricter: list[Evidence] = []
    framed: list[Evidence] = []
    laxer: list[Evidence] = []
    for item in items:
        wrong_value = find_wrong_value(item, table)
        reference = table.look_up(item.example, item.reference).value
        if reference is None or reference <= wrong_value + TOLERANCE:
            continue  # this reward credits nothing; other rows say so
        marked = {mark.format(text) for mark in _MARKS for text in (item.label, item.reference)}
        for text in _list_texts(item):
            measured = measure(item.example, text)
            outcome = table.look_up(item.example, text)
            if outcome.value is None or (measured and measured < 1.0 - TOLERANCE):
                continue
            is_credited = outcome.value > wrong_value + TOLERANCE
            (right if measured else other).append(outcome)
            if measured and not is_credited:
                why = "the metric calls it right"
                found = framed if text in marked else stricter
                found.append(point_at(item.example, text, outcome, why))
            if not measured and is_credited:
                why = "the metric calls it " + ("invalid" if measured is None else "wrong")
                laxer.append(point_at(item.example, text, outcome, why))
    return [
        STRICTER.make_row(right, stricter),
        FRAMED.make_row(right, framed),
        LAXER.make_row(other, laxer),
    ]


def _list_texts(item: Item) -> list[str]:
    """Return the spellings of the label, of the reference and of one wrong answer.

    What stands in tags before the answer's is no part of the answer, and stays as it is.
    """
    thoughts = [match.group() for match in texts.TAGGED.finditer(item.reference)][:-1]
    sources = dict.fromkeys((item.reference, item.label, *item.wrong[:1]))
    spelled = [text for source in sources for text in write_spellings(source)]
    if thoughts:
        inside = [replace_label(item, text) for text in write_spellings(item.label)]
        spelled = [*inside, *(t for t in spelled if all(thought in t for thought in thoughts))]
    return list(dict.fromkeys(spelled))


def check_merged(case: RewardCase, table: ScoreTable) -> list[AuditRow]:
    """Return a row about labels that differ in marks alone, if there are any.

    Every label is looked at, not only those of the sample. Case, space, commas of thousands and
    marks around a label never make another one.
    """
    alike: dict[str, dict[str, Example]] = {}
    for example in case.examples:
        plain = unicodedata.normalize("NFKC", example.label or "").casefold()
        letters = "".join(filter(str.isalnum, plain))
        spelled = " ".join(_COMMA_OF_THOUSANDS.sub("", plain).strip(_AROUND).split())
        alike.setdefault(letters, {}).setdefault(spelled, example)
    outcomes: list[Outcome] = []
    failures: list[Evidence] = []
    for group in alike.values():
        for example, other in pairwise(group.values()):
            text = case.write(other, str(other.label))
            outcomes.append(table.look_up(example, text))
            if case.parser.measure(example, text) == 1.0:
                why = f"the metric takes it for the label {example.label!r}"
                failures.append(point_at(example, text, outcomes[-1], why))
    return [MERGED.make_row(outcomes, failures)] if outcomes else []


def check_usable(case: RewardCase) -> tuple[AuditRow, list[Example]]:
    """Ask the rewards about every example, not only the sample.

    Returns:
        The row, whose evidence has the first example of each reason in front, and the examples
        that can be used.
    """
    asked = [(example, explain_unusable(case.rewards, example)) for example in case.examples]
    found = [(example, why) for example, why in asked if why]
    counts = Counter(why for _, why in found)
    order = {why: place for place, (why, _) in enumerate(counts.most_common())}
    firsts = {why: example for example, why in reversed(found)}
    found.sort(key=lambda pair: (firsts[pair[1]] is not pair[0], order[pair[1]]))
    failures = [
        Evidence(
            example.id,
            example.label,
            "any answer",
            None,
            f"{why} ({counts[why]} of {len(asked)} examples)",
        )
        for example, why in found
    ]
    row = UNUSABLE.make_row([], failures, num_tried=len(asked))
    return row, [example for example, why in asked if not why]
