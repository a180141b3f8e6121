import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.core import Completion, Example, Message, RewardError, Score, make_example
from groupwise.rewards import (
    HumanOverride,
    LabelMatch,
    LabelParser,
    Reward,
    RewardKind,
    RewardSet,
)

PARSER = LabelParser(labels=("on-task", "off-task"))


def make_item(label: str | None, human: object = None) -> Example:
    fields = {} if human is None else {"human_label": human}
    return make_example([Message("user", "?")], cluster="g", label=label, fields=fields)


class Judge:
    name = "judge"
    kind: RewardKind = "judgement"

    def __init__(self, value: float | None) -> None:
        self.value = value

    def __call__(self, example: Example, completion: Completion) -> Score:
        return Score(self.value)


def make_set(value: float | None) -> RewardSet:
    match = LabelMatch(PARSER)
    return RewardSet(
        {"human": (HumanOverride(match), 1.0), "label": (match, 0.3), "judge": (Judge(value), 0.5)},
        drop_contradicted=True,
    )


def test_a_persons_label_takes_the_place_of_the_examples() -> None:
    reward = HumanOverride(LabelMatch(PARSER))
    assert reward(make_item("off-task", "on-task"), Completion("on-task")).value == 1.0
    assert reward(make_item("on-task", "off-task"), Completion("on-task")).value == 0.0
    assert reward(make_item(None, "on-task"), Completion("on-task")).value == 1.0
    assert reward(make_item("on-task", "on-task"), Completion("??")).invalid
    assert isinstance(reward, Reward)


def test_where_nobody_corrected_there_is_no_score() -> None:
    reward = HumanOverride(LabelMatch(PARSER))
    got = reward(make_item("on-task"), Completion("on-task"))
    assert got == Score(None, "nobody corrected this")


def test_a_label_that_cannot_be_is_an_error() -> None:
    reward = HumanOverride(LabelMatch(PARSER))
    with pytest.raises(RewardError, match="no text; got 1"):
        reward(make_item("on-task", 1), Completion("on-task"))
    with pytest.raises(RewardError, match="no answer can give"):
        reward(make_item("on-task", "maybe"), Completion("on-task"))


@given(
    st.sampled_from(PARSER.labels),
    st.sampled_from(PARSER.labels),
    st.none() | st.floats(0, 1),
)
def test_in_a_set_the_person_decides(truth: str, human: str, judged: float | None) -> None:
    rewards = make_set(judged)
    for answer in PARSER.labels:
        got = rewards.score(make_item(truth, human), Completion(answer))
        assert got.value == float(answer == human)
        assert got.breakdown["label"] is None
        assert got.breakdown["judge"] is None


def test_without_a_person_the_set_works_as_before() -> None:
    got = make_set(0.9).score(make_item("on-task"), Completion("on-task"))
    assert got.value == pytest.approx((0.3 + 0.5 * 0.9) / 0.8)
