"""The reward of every kind of answer passes the audit with its own parser."""

import json

import pytest

from groupwise.core import Message, make_example
from groupwise.rewards import (
    BoxParser,
    ChoiceParser,
    JsonParser,
    LabelParser,
    MathParser,
    NumberParser,
    RewardCase,
    TextParser,
    audit_rewards,
)

TAGS = ("think", "answer")
BOXES = [[[10 * n, 5, 10 * n + 50, 60, "车"]] for n in range(4)]
CASES = {
    "labels": (LabelParser(labels=("合格", "不合格")), ["合格", "不合格"]),
    "tagged labels": (LabelParser(labels=("yes", "no"), tags=TAGS), ["yes", "no"]),
    "choice": (ChoiceParser(), ["A", "B", "C", "D"]),
    "several": (ChoiceParser(several=True), ["A", "A, C", "B", "B, D"]),
    "number": (NumberParser(), ["42", "3.5", "-7", "18 dollars", "50%", "3/4"]),
    "maths": (MathParser(), ["so 9 + 9\n#### 18", r"\frac{1}{2}"]),
    "text": (TextParser(), ["Paris", "北京", "the Eiffel Tower", "七月四日"]),
    "json": (JsonParser(), [json.dumps({"a": n, "b": ["x", str(n)]}) for n in range(4)]),
    "boxes": (BoxParser(), list(map(json.dumps, BOXES))),
}


@pytest.mark.parametrize("kind", CASES)
def test_the_reward_of_each_kind_passes(kind: str) -> None:
    parser, labels = CASES[kind]
    options = {"options": ["甲", "乙", "丙", "丁"]} if kind == "choice" else {}
    examples = [
        make_example(
            [Message("user", f"问题 {place}")],
            cluster=str(place),
            label=label,
            fields={**options, **({"boxes": BOXES[place]} if kind == "boxes" else {})},
        )
        for place, label in enumerate(labels)
    ]
    found = audit_rewards(RewardCase(parser.make_reward(), examples, parser))
    assert [(finding.name, finding.where[:2]) for finding in found.errors] == []


def test_labels_that_a_comparison_takes_for_one_are_found() -> None:
    """``x^2`` and ``x2`` are one text without punctuation; the rest of each pair is not."""
    labels = ["-5", "C++", "x^2", "U.S.", "1,200"] + ["word"] * 20 + ["5", "C#", "x2", "US", "1200"]
    examples = [
        make_example([Message("user", f"{n}?")], cluster=str(n), label=label)
        for n, label in enumerate(labels)
    ]
    parser = TextParser()
    audit = audit_rewards(RewardCase(parser.make_reward(), examples, parser))
    row = next(row for row in audit.rows if row.name == "reward/labels-count-as-one")
    assert (row.level, row.num_tried) == ("warning", 4)
    assert [(found.label, found.text) for found in row.evidence] == [("x^2", "x2"), ("U.S.", "US")]
