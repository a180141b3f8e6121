import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from groupwise.core import Completion, DataError, Example, Message, RewardError, Score, make_example
from groupwise.rewards import (
    AnswerFormat,
    LabelMatch,
    LabelParser,
    RewardSet,
    WeightedReward,
)

ITEM = make_example([Message("user", "?")], cluster="g", label="on-task")
PARSER = LabelParser(labels=("on-task", "off-task"))


class Fixed:
    def __init__(
        self,
        value: float | None,
        *,
        name: str = "fixed",
        invalid: bool = False,
        kind: str = "other",
    ) -> None:
        self.name = name
        self.kind = kind
        self.score = Score(value, f"said {value}", invalid=invalid)

    def __call__(self, example: Example, completion: Completion) -> Score:
        return self.score


class Failing:
    name = "failing"

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __call__(self, example: Example, completion: Completion) -> Score:
        raise self.error


def score(**parts: tuple[Fixed, float]) -> Score:
    return RewardSet(parts).score(ITEM, Completion("on-task"))


def test_the_value_is_the_weighted_mean_and_the_parts_stay() -> None:
    got = score(a=(Fixed(1.0), 3), b=(Fixed(0.5), 1))
    assert got.value == pytest.approx(0.875)
    assert got.breakdown == {"a": 1.0, "b": 0.5}
    assert got.reason == "a: said 1.0; b: said 0.5"


def test_a_part_without_a_value_leaves_the_answer_without_a_score() -> None:
    got = score(a=(Fixed(1.0), 0.3), b=(Fixed(None), 0.5), c=(Fixed(0.0), 0.2))
    assert got.value is None
    assert got.breakdown == {"a": 1.0, "b": None, "c": 0.0}


def test_without_any_value_there_is_no_score() -> None:
    assert score(a=(Fixed(None), 1), b=(Fixed(None), 2)).value is None


def test_a_part_of_weight_zero_is_shown_but_never_counts() -> None:
    got = score(a=(Fixed(1.0), 0), b=(Fixed(None), 1))
    assert (got.value, got.breakdown) == (None, {"a": 1.0, "b": None})


def test_an_invalid_completion_earns_nothing_from_any_part() -> None:
    got = score(a=(Fixed(0.0, invalid=True), 0.1), b=(Fixed(1.0), 0.9))
    assert (got.value, got.invalid) == (0.0, True)


parts = st.lists(
    st.tuples(
        st.one_of(st.none(), st.floats(0, 1)),
        st.one_of(st.just(0.0), st.floats(1e-300, 1e300)),
    ),
    min_size=1,
    max_size=5,
).filter(lambda drawn: any(weight > 0 for _, weight in drawn))


@example([(None, 516484816443170.0), (0.5, 1e-300)])
@given(parts)
def test_any_weights_give_a_value_between_the_parts(
    drawn: list[tuple[float | None, float]],
) -> None:
    rewards = RewardSet({f"r{i}": (Fixed(v), w) for i, (v, w) in enumerate(drawn)})
    assert math.fsum(rewards.weights.values()) == pytest.approx(1.0)
    value = rewards.score(ITEM, Completion("x")).value
    counted = [v for v, weight in drawn if weight > 0]
    known = [v for v in counted if v is not None]
    if len(known) == len(counted):
        assert value is not None
        assert min(known) - 1e-9 <= value <= max(known) + 1e-9
    else:
        assert value is None


def test_weights_are_shares() -> None:
    rewards = RewardSet([WeightedReward(Fixed(1.0, name="x"), 1), WeightedReward(Fixed(1.0), 3)])
    assert rewards.weights == {"x": 0.25, "fixed": 0.75}


def test_a_name_of_its_own_lets_one_reward_stand_twice() -> None:
    rewards = RewardSet([WeightedReward(Fixed(1.0), 1, "x"), WeightedReward(Fixed(0.0), 1)])
    assert set(rewards.weights) == {"x", "fixed"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "no rewards"),
        ([WeightedReward(Fixed(1.0), 1), WeightedReward(Fixed(0.0), 1)], "appears twice"),
        ({"a": (Fixed(1.0), -1)}, "weight of reward 'a'"),
        ({"a": (Fixed(1.0), math.nan)}, "weight of reward 'a'"),
        ({"a": (Fixed(1.0), math.inf)}, "weight of reward 'a'"),
        ({"a": (Fixed(1.0), 0), "b": (Fixed(1.0), 0)}, "weight 0"),
    ],
)
def test_a_set_that_cannot_work_is_refused(given, message: str) -> None:
    with pytest.raises(RewardError, match=message):
        RewardSet(given)


def test_a_reward_that_raises_is_named_and_never_a_number() -> None:
    with pytest.raises(RewardError, match=r"reward 'bad' failed on example .*KeyError"):
        RewardSet({"bad": (Failing(KeyError("x")), 1)}).score(ITEM, Completion(""))
    with pytest.raises(DataError, match="gone"):
        RewardSet({"bad": (Failing(DataError("gone")), 1)}).score(ITEM, Completion(""))


def test_a_reward_that_returns_a_number_is_refused() -> None:
    def pay(example: Example, completion: Completion) -> float:
        return 1.0

    with pytest.raises(RewardError, match="did not return a Score; got float"):
        RewardSet({"pay": (pay, 1)}).score(ITEM, Completion(""))  # pyright: ignore


@pytest.mark.parametrize(
    ("text", "value"),
    [("on-task", 1.0), ("off-task", 0.1), ("on-task off-task", 0.0), ("", 0.0), ("ontask", 0.0)],
)
def test_label_and_format_together(text: str, value: float) -> None:
    rewards = RewardSet({"label": (LabelMatch(PARSER), 0.9), "format": (AnswerFormat(PARSER), 0.1)})
    assert rewards.score(ITEM, Completion(text)).value == pytest.approx(value)


class Counting:
    name = "counting"

    def __init__(self, num_returned: int | None = None) -> None:
        self.num_returned = num_returned
        self.sizes: list[int] = []

    def __call__(self, example: Example, completion: Completion) -> Score:
        raise AssertionError("not asked one by one")

    def score_batch(self, examples, completions) -> list[Score]:
        self.sizes.append(len(examples))
        return [Score(len(c.text) / 10) for c in completions][: self.num_returned]


def test_a_batch_is_scored_in_order_and_a_batch_reward_is_called_once() -> None:
    counting = Counting()
    rewards = RewardSet({"a": (counting, 1), "b": (Fixed(1.0), 1)})
    got = rewards.score_batch([ITEM] * 3, [Completion("x" * n) for n in (0, 5, 10)])
    assert [score.value for score in got] == [0.5, 0.75, 1.0]
    assert counting.sizes == [3]
    assert rewards.score_batch([], []) == []


def test_a_batch_reward_that_loses_rows_is_refused() -> None:
    with pytest.raises(RewardError, match="lost count on a batch of 2; got 1 scores"):
        RewardSet({"a": (Counting(1), 1)}).score_batch([ITEM] * 2, [Completion("x")] * 2)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(RewardError, match="'fixed' has an unknown kind; got 'judge'"):
        RewardSet({"a": (Fixed(1.0, kind="judge"), 1)})
