"""A part without a value: no two answers to one example are ever paid by different weights."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.core import Completion, Example, Message, Score, make_example
from groupwise.rewards import (
    BoxIou,
    ChoiceParser,
    CodeTests,
    ExactMatch,
    HumanOverride,
    LabelMatch,
    LabelParser,
    MathEquality,
    Reward,
    RewardSet,
    VqaAccuracy,
)

KINDS = ("human", "truth", "judgement", "format", "shaping", "other")
ITEM = make_example([Message("user", "?")], cluster="g")


class Part:
    """Pays each answer what it was told to; it has nothing to say where ``is_there`` is false."""

    name = "part"

    def __init__(self, kind: str, paid: dict[str, float | None], *, is_there: bool = True) -> None:
        self.kind = kind
        self.paid = paid
        self.is_there = is_there

    def applies_to(self, example: Example) -> bool:
        return self.is_there

    def __call__(self, example: Example, completion: Completion) -> Score:
        return Score(self.paid[completion.text] if self.is_there else None, "said")


def pay(rewards: RewardSet, *texts: str) -> list[float | None]:
    return [rewards.score(ITEM, Completion(text)).value for text in texts]


def test_a_failed_judge_gives_its_weight_to_nobody() -> None:
    judge = Part("judgement", {"judged": 0.7, "failed": None, "wrong, failed": None})
    form = Part("format", {"judged": 1.0, "failed": 1.0, "wrong, failed": 1.0})
    rewards = RewardSet({"judge": (judge, 0.8), "format": (form, 0.2)})
    judged, failed, wrong = pay(rewards, "judged", "failed", "wrong, failed")
    assert judged == pytest.approx(0.76)
    assert (failed, wrong) == (None, None)


@st.composite
def draw_group(draw: st.DrawFn) -> tuple[RewardSet, list[str]]:
    """A set that is accepted, and the answers of one group; any part may fail on any of them."""
    names = [f"answer {number}" for number in range(draw(st.integers(2, 4)))]
    value = st.none() | st.sampled_from([0.0, 0.2, 0.5, 0.9, 1.0])
    parts: dict[str, tuple[Reward, float]] = {}
    for number in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(KINDS))
        part = Part(kind, {name: draw(value) for name in names}, is_there=draw(st.booleans()))
        weight = draw(st.sampled_from([0.01, 0.2, 1.0, 3.0]))
        parts[f"{number} {kind}"] = (part, weight * (20 if kind == "truth" else 1))
    return RewardSet(parts, drop_contradicted=True), names


@given(draw_group())
def test_rows_of_a_group_are_paid_by_the_same_weights(group: tuple[RewardSet, list[str]]) -> None:
    rewards, names = group
    weights = rewards.weigh(ITEM)
    for score in rewards.score_batch([ITEM] * len(names), [Completion(name) for name in names]):
        counted = {name: score.breakdown[name] for name in weights}
        if not weights or None in counted.values():
            assert score.value is None
        else:
            paid = sum(weights[name] * (value or 0.0) for name, value in counted.items())
            assert score.value == pytest.approx(paid)


@pytest.mark.parametrize("missing", list(product([True, False], repeat=3)))
def test_every_subset_of_missing_parts(missing: tuple[bool, ...]) -> None:
    """Right beats wrong or one of them has no value, whichever parts failed on either."""
    kinds = {"truth": 0.6, "judgement": 0.3, "format": 0.1}
    for also_missing in product([True, False], repeat=3):
        parts: dict[str, tuple[Reward, float]] = {
            kind: (
                Part(kind, {"right": None if gone else 1.0, "wrong": None if also else 0.4}),
                weight,
            )
            for (kind, weight), gone, also in zip(kinds.items(), missing, also_missing, strict=True)
        }
        right, wrong = pay(RewardSet(parts), "right", "wrong")
        assert right == (None if any(missing) else pytest.approx(1.0))
        assert wrong == (None if any(also_missing) else pytest.approx(0.4))


def test_a_part_that_does_not_apply_leaves_its_weight_to_the_others_for_every_answer() -> None:
    absent = Part("truth", {}, is_there=False)
    judge = Part("judgement", {"right": 0.9, "wrong": 0.2})
    rewards = RewardSet({"truth": (absent, 0.7), "judge": (judge, 0.3)})
    assert rewards.weigh(ITEM) == {"judge": 1.0}
    assert pay(rewards, "right", "wrong") == [0.9, 0.2]


def test_where_no_part_applies_there_is_no_score() -> None:
    rewards = RewardSet({"truth": (Part("truth", {}, is_there=False), 1.0)})
    assert pay(rewards, "x") == [None]


def test_a_person_decides_for_the_whole_group_and_if_that_fails_nobody_does() -> None:
    person = Part("human", {"right": 1.0, "failed": None})
    label = Part("truth", {"right": 0.0, "failed": 1.0})
    form = Part("format", {"right": 1.0, "failed": 1.0})
    rewards = RewardSet({"person": (person, 0.1), "label": (label, 0.8), "form": (form, 0.1)})
    assert rewards.weigh(ITEM) == {"person": 0.5, "form": 0.5}
    assert pay(rewards, "right", "failed") == [1.0, None]


def test_a_judgement_that_the_truth_contradicts_counts_as_the_truth() -> None:
    """It keeps its weight, so that a judgement beside it is paid by the same."""
    said = {"right, 0": 0.0, "right, 0.2": 0.2, "right, 0.7": 0.7, "wrong, 1": 1.0}
    truth = Part("truth", {text: float(text.startswith("right")) for text in said})
    judge = Part("judgement", dict(said))
    rewards = RewardSet({"label": (truth, 0.3), "judge": (judge, 0.5)}, drop_contradicted=True)
    assert pay(rewards, *said) == pytest.approx([1.0, 1.0, 0.65 / 0.8, 0.0])


@pytest.mark.parametrize(
    ("reward", "there"),
    [
        (LabelMatch(LabelParser(labels=("a", "b"))), {"label": "a"}),
        (LabelMatch(ChoiceParser()), {"label": "A"}),
        (ExactMatch(), {"label": "x"}),
        (ExactMatch(), {"fields": {"answers": ["x"]}}),
        (MathEquality(), {"label": "1"}),
        (VqaAccuracy(), {"fields": {"answers": ["a", "b"]}}),
        (BoxIou(), {"fields": {"boxes": [[0, 0, 1, 1]]}}),
        (CodeTests(), {"fields": {"tests": "assert f() == 1", "entry_point": "f"}}),
        (HumanOverride(ExactMatch()), {"fields": {"human_label": "x"}}),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_the_librarys_rewards_say_where_they_apply(reward: Reward, there: dict) -> None:
    rewards = RewardSet({"it": (reward, 1.0)})
    assert rewards.weigh(make_example([Message("user", "?")], cluster="g", **there)) == {"it": 1.0}
    assert rewards.weigh(ITEM) == {}
