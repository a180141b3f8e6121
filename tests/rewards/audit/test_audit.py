"""What an audit is made of: its rows, names, evidence and sample."""

import json
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.core import Completion, Example, Message, RewardError, Score, make_example
from groupwise.rewards import (
    BoxParser,
    ChoiceParser,
    HumanOverride,
    JsonParser,
    LabelMatch,
    LabelParser,
    MathParser,
    NearMisses,
    NumberParser,
    RewardCase,
    RewardSet,
    TextParser,
)
from groupwise.rewards.audit.answers import draw_items, write_spellings
from groupwise.rewards.audit.audit import audit_rewards
from groupwise.rewards.audit.rows import list_reward_findings


def ask(label: str, number: int, **fields: object) -> Example:
    said = [Message("user", f"问题 {number}?")]
    return make_example(said, cluster=str(number), label=label, fields=fields)


def find_row(audit, name: str):
    [row] = [row for row in audit.rows if row.name == name]
    return row


def test_every_row_has_a_known_name_and_stands_once(case, parser):
    audit = audit_rewards(replace(case, rewards=LabelMatch(parser)))
    names = [row.name for row in audit.rows]
    assert len(set(names)) == len(names)
    assert set(names) <= set(list_reward_findings())
    assert all(row.num_tried for row in audit.rows)


def test_findings_show_the_example_the_answer_and_what_it_earned(case):
    audit = audit_rewards(replace(case, rewards=lambda e, c: Score(1.0, "always")))
    row = find_row(audit, "reward/pays-empty")
    first = case.examples[0]
    assert (row.highest, row.num_failed, row.is_passed) == (1.0, 10, False)
    assert row.evidence[0].example_id == first.id
    assert row.make_finding().where[0] == (
        f"'' earns 1 on {first.id[:12]}: it must earn 0 (it says: 'always')"
    )


def test_errors_come_first_and_json_has_everything(case):
    audit = audit_rewards(replace(case, rewards=lambda e, c: Score(None if c.text else 0.5)))
    levels = [finding.level for finding in audit.findings]
    assert levels == sorted(levels)
    values = json.loads(json.dumps(audit.to_json()))
    assert values["num_examples"] == 10
    assert [row["name"] for row in values["rows"]] == [row.name for row in audit.rows]


def test_long_answers_are_shown_shortened(case):
    audit = audit_rewards(replace(case, rewards=lambda e, c: Score(1.0)))
    assert max(len(place) for f in audit.findings for place in f.where) < 400


def test_without_examples_nothing_can_be_audited(case):
    with pytest.raises(RewardError, match="without examples"):
        audit_rewards(replace(case, examples=[]))


def test_the_sample_takes_labels_in_turn(case):
    unlabelled = replace(case.examples[0], label=None)
    items = draw_items(replace(case, examples=[unlabelled, *case.examples]))[:4]
    assert [item.label for item in items] == ["on-task", "off-task", "on-task", "off-task"]
    assert [item.wrong for item in items] == [["off-task"], ["on-task"]] * 2


def test_other_labels_that_are_right_too_are_not_wrong_answers(open_case):
    """Two spellings of one number: each is a right answer to the other's question."""
    first, second = open_case.examples[:2]
    examples = [first, replace(second, label=f"{first.label}.0")]
    items = draw_items(replace(open_case, examples=examples))
    assert [item.wrong for item in items] == [[], []]


@pytest.mark.usefixtures("patient")
def test_each_answer_is_scored_once_and_some_four_times_again(case, parser):
    seen: list[tuple[str, str]] = []

    def score(example: Example, completion: Completion) -> Score:
        seen.append((example.id, completion.text))
        return LabelMatch(parser)(example, completion)

    audit = audit_rewards(replace(case, rewards=score))
    counts = Counter(seen)
    assert len(counts) == audit.num_scored
    often, num_often = counts.most_common(1)[0]
    assert (often[1], sum(counts.values()) > 8000, num_often < 8000) == ("", True, True)
    del counts[often]
    assert Counter(counts.values()) == {1: len(counts) - 20, 5: 20}


@given(st.text(min_size=1, max_size=30))
def test_spellings_are_other_texts_each_once(text: str):
    spellings = list(write_spellings(text))
    assert text not in spellings
    assert len(set(spellings)) == len(spellings)


@settings(max_examples=20)
@given(
    st.lists(
        st.text("abcdefgh不是通过合格 -", min_size=1, max_size=8).map(str.strip).filter(bool),
        min_size=2,
        max_size=4,
        unique_by=str.lower,
    )
)
def test_the_shipped_reward_passes_with_any_labels(labels: list[str]):
    try:
        parser = LabelParser(labels=tuple(labels))
        written = [parser.write(label) for label in labels]
    except (ValueError, RewardError):
        return
    assert written == labels
    examples = [ask(label, number) for number, label in enumerate(labels)]
    case = RewardCase(LabelMatch(parser), examples, parser)
    assert [(f.name, f.where) for f in audit_rewards(case).errors] == []


TAGS = ("think", "answer")
NEAR = "reward/pays-near-form"
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
    "tagged json": (JsonParser(tags=TAGS), [json.dumps({"a": str(n), "b": 7}) for n in range(4)]),
    "boxes": (BoxParser(), list(map(json.dumps, BOXES))),
}


@pytest.mark.parametrize("kind", CASES)
def test_the_reward_of_each_kind_passes(kind: str) -> None:
    parser, labels = CASES[kind]
    fields = {
        "choice": lambda _: {"options": ["甲", "乙", "丙", "丁"]},
        "boxes": lambda place: {"boxes": BOXES[place]},
    }.get(kind, lambda _: {})
    examples = [ask(label, place, **fields(place)) for place, label in enumerate(labels)]
    found = audit_rewards(RewardCase(parser.make_reward(), examples, parser))
    assert [(finding.name, finding.where[:2]) for finding in found.errors] == []
    has_near_forms = NEAR in {row.name for row in found.rows}
    assert has_near_forms is isinstance(parser, NearMisses) is ("json" in kind or kind == "boxes")


def test_labels_that_a_comparison_takes_for_one_are_found() -> None:
    """``x^2`` and ``x2`` are one text without punctuation; the rest of each pair is not."""
    labels = ["-5", "C++", "x^2", "U.S.", "1,200"] + ["word"] * 20 + ["5", "C#", "x2", "US", "1200"]
    examples = [ask(label, number) for number, label in enumerate(labels)]
    parser = TextParser()
    audit = audit_rewards(RewardCase(parser.make_reward(), examples, parser))
    row = find_row(audit, "reward/labels-count-as-one")
    assert (row.level, row.num_tried) == ("warning", 4)
    assert [(found.label, found.text) for found in row.evidence] == [("x^2", "x2"), ("U.S.", "US")]


class Picky:
    """Cannot use the label "broken", nor those that are no label at all."""

    name = "picky"
    kind = "truth"

    def __call__(self, example: Example, completion: Completion) -> Score:
        why = self.explain_unusable(example)
        return Score(None, why) if why else Score(float(completion.text == example.label))

    def explain_unusable(self, example: Example) -> str | None:
        return None if example.label in ("on-task", "off-task") else f"cannot read {example.label}"


def test_unusable_references_are_an_error_counted_by_reason(case, parser):
    labels = ["on-task", "off-task", "broken", "broken", "torn"]
    examples = [
        replace(example, label=label)
        for example, label in zip(case.examples, labels * 2, strict=True)
    ]
    rewards = RewardSet({"label": (LabelMatch(parser), 0.9), "picky": (Picky(), 0.1)})
    changed = replace(case, rewards=rewards, examples=examples)
    row = find_row(audit_rewards(changed), "reward/unusable-example")
    assert (row.level, row.num_tried, row.num_failed) == ("error", 10, 6)
    assert [(e.example_id, e.label, e.why) for e in row.evidence[:2]] == [
        (examples[2].id, "broken", "picky: cannot read broken (4 of 10 examples)"),
        (examples[4].id, "torn", "picky: cannot read torn (2 of 10 examples)"),
    ]


def test_all_examples_are_looked_at_and_not_only_the_sample(case):
    examples = [*case.examples * 20, replace(case.examples[0], label="broken")]
    changed = replace(case, rewards=Picky(), examples=examples)
    row = find_row(audit_rewards(changed), "reward/unusable-example")
    assert (row.num_tried, row.num_failed) == (201, 1)


def test_nothing_else_is_tried_where_no_example_can_be_used(case):
    examples = [replace(example, label="broken") for example in case.examples]
    audit = audit_rewards(replace(case, rewards=Picky(), examples=examples))
    assert [row.name for row in audit.rows] == ["reward/unusable-example"]
    assert [finding.count for finding in audit.errors] == [10]


def test_a_part_without_weight_makes_nothing_unusable(case, parser):
    rewards = RewardSet({"label": (LabelMatch(parser), 1.0), "picky": (Picky(), 0.0)})
    assert rewards.explain_unusable(replace(case.examples[0], label="broken")) is None


def test_a_persons_label_is_what_has_to_be_usable(case):
    reward = HumanOverride(Picky())
    broken = replace(case.examples[0], label="broken")
    assert reward.explain_unusable(broken) is None
    assert reward.explain_unusable(replace(broken, fields={"human_label": "on-task"})) is None
    wrong = replace(case.examples[0], fields={"human_label": "torn"})
    assert reward.explain_unusable(wrong) == "cannot read torn"


JSON = JsonParser(tags=("think", "answer"))
BOXES_NEAR_FORMS = BoxParser()


TICKETS = [
    ask(json.dumps({"verdict": word, "parts": [number, 7]}), number)
    for number, word in enumerate(["合格", "不合格", "返工", "报废"])
]
PHOTOS = [
    ask(BOXES_NEAR_FORMS.write(json.dumps([box])), number, boxes=[box])
    for number in range(4)
    for box in [[10 * number, 5, 10 * number + 50, 60, "car"]]
]


def match_one_key(example: Example, completion: Completion) -> float:
    """As people write it: the verdict alone counts."""
    said, right = (JSON.parse(text).value for text in (completion.text, JSON.write(example.label)))
    return float(isinstance(said, dict) and said.get("verdict") == right["verdict"])


def find_any_box(example: Example, completion: Completion) -> float:
    """As people write it: a box that covers the right one counts."""
    boxes = BOXES_NEAR_FORMS.parse(completion.text).value or ()
    [(x1, y1, x2, y2, _)] = example.fields["boxes"]
    covers = (box and box.x1 <= x1 and box.y1 <= y1 and box.x2 >= x2 and box.y2 >= y2
              for box in boxes)  # fmt: skip
    return float(any(covers))


@pytest.mark.parametrize(
    ("reward", "parser", "examples", "shown"),
    [
        (match_one_key, JSON, TICKETS, '"parts": [1, 7]'),
        (find_any_box, BOXES_NEAR_FORMS, PHOTOS, '"bbox_2d": [0.0, 0.0, 100.0, 120.0]'),
    ],
)
def test_a_loose_reward_is_found(reward, parser, examples, shown: str) -> None:
    row = find_row(audit_rewards(RewardCase(reward, examples, parser)), NEAR)
    assert not row.is_passed
    assert any(shown in evidence.text for evidence in row.evidence)


def test_near_misses_are_no_right_answers() -> None:
    for parser, example in ((JSON, TICKETS[0]), (BOXES_NEAR_FORMS, PHOTOS[0])):
        assert isinstance(parser, NearMisses)
        near = parser.write_near_misses(str(example.label))
        assert len(near) > 3
        assert all((parser.measure(example, text) or 0.0) < 1.0 for text in near)
