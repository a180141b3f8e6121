"""Near misses that the answer parser writes: JSON with a part that is wrong, boxes beside."""

import json

import pytest

from groupwise.core import Completion, Example, Message, make_example
from groupwise.rewards import BoxParser, JsonParser, LabelParser, NearMisses, RewardCase
from groupwise.rewards import audit_rewards as audit

NEAR = "reward/pays-near-form"
JSON = JsonParser(tags=("think", "answer"))
BOXES = BoxParser()


def ask(label: str, number: int, **fields: object) -> Example:
    return make_example([Message("user", f"? {number}")], cluster="g", label=label, fields=fields)


TICKETS = [
    ask(json.dumps({"verdict": word, "parts": [number, 7]}), number)
    for number, word in enumerate(["合格", "不合格", "返工", "报废"])
]
PHOTOS = [
    ask(BOXES.write(json.dumps([box])), number, boxes=[box])
    for number in range(4)
    for box in [[10 * number, 5, 10 * number + 50, 60, "car"]]
]


def match_one_key(example: Example, completion: Completion) -> float:
    """As people write it: the verdict alone counts."""
    said, right = (JSON.parse(text).value for text in (completion.text, JSON.write(example.label)))
    return float(isinstance(said, dict) and said.get("verdict") == right["verdict"])


def find_any_box(example: Example, completion: Completion) -> float:
    """As people write it: a box that covers the right one counts."""
    boxes = BOXES.parse(completion.text).value or ()
    [(x1, y1, x2, y2, _)] = example.fields["boxes"]
    covers = (box and box.x1 <= x1 and box.y1 <= y1 and box.x2 >= x2 and box.y2 >= y2
              for box in boxes)  # fmt: skip
    return float(any(covers))


@pytest.mark.parametrize(
    ("reward", "parser", "examples", "shown"),
    [
        (match_one_key, JSON, TICKETS, '"parts": [1, 7]'),
        (find_any_box, BOXES, PHOTOS, '"bbox_2d": [0.0, 0.0, 100.0, 120.0]'),
    ],
)
def test_a_loose_reward_is_found(reward, parser, examples, shown: str) -> None:
    [row] = [row for row in audit(RewardCase(reward, examples, parser)).rows if row.name == NEAR]
    assert not row.is_passed
    assert any(shown in evidence.text for evidence in row.evidence)


@pytest.mark.parametrize(("parser", "examples"), [(JSON, TICKETS), (BOXES, PHOTOS)])
def test_the_reward_of_the_parser_passes(parser, examples) -> None:
    found = audit(RewardCase(parser.make_reward(), examples, parser))
    assert [row.name for row in found.rows if row.name == NEAR] == [NEAR]
    assert NEAR not in {finding.name for finding in found.findings}


def test_near_misses_are_no_right_answers() -> None:
    for parser, example in ((JSON, TICKETS[0]), (BOXES, PHOTOS[0])):
        assert isinstance(parser, NearMisses)
        near = parser.write_near_misses(str(example.label))
        assert len(near) > 3
        assert all((parser.measure(example, text) or 0.0) < 1.0 for text in near)
    assert not isinstance(LabelParser(labels=("a", "b")), NearMisses)
