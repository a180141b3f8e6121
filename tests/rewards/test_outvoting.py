"""Truth against judgement: what the spec of on_task asks, as a property over all judge outputs."""

from collections.abc import Mapping
from itertools import product

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from groupwise.core import Completion, Example, Message, RewardError, Score, make_example
from groupwise.rewards import Reward, RewardSet

ITEM = make_example([Message("user", "?")], cluster="g")
RIGHT, WRONG = Completion("right"), Completion("wrong")

values = st.one_of(st.none(), st.floats(0, 1), st.sampled_from([0.0, 0.5, 1.0]))
weights = st.one_of(st.floats(0.001, 1), st.sampled_from([0.2, 0.3, 0.5]))


class Part:
    """Pays one value for the right answer and one for the wrong one; without any, it is absent."""

    name = "part"

    def __init__(self, kind: str, right: float | None, wrong: float | None) -> None:
        self.kind = kind
        self.values = {"right": right, "wrong": wrong}

    def applies_to(self, example: Example) -> bool:
        return any(value is not None for value in self.values.values())

    def __call__(self, example: Example, completion: Completion) -> Score:
        return Score(self.values[completion.text], f"said {self.values[completion.text]}")


def truth(value: float | None = 1.0) -> Part:
    return Part("truth", value, None if value is None else 1 - value)


def judge(right: float | None, wrong: float | None) -> Part:
    return Part("judgement", right, wrong)


def pay(parts: Mapping[str, tuple[Reward, float]], *, drop: bool = True) -> tuple[Score, Score]:
    rewards = RewardSet(parts, drop_contradicted=drop)
    return rewards.score(ITEM, RIGHT), rewards.score(ITEM, WRONG)


@given(values, values, values)
def test_with_the_weights_of_on_task_the_right_answer_wins(
    said_of_right: float | None, said_of_wrong: float | None, seen: float | None
) -> None:
    right, wrong = pay(
        {
            "classification": (truth(), 0.3),
            "judge": (judge(said_of_right, said_of_wrong), 0.5),
            "verifier": (Part("other", seen, seen), 0.2),
        }
    )
    is_failed = (said_of_right is None) != (said_of_wrong is None)
    assert (None in (right.value, wrong.value)) == is_failed
    assert is_failed or right.value > wrong.value


@given(
    st.booleans(),
    st.lists(weights, min_size=1, max_size=2),
    st.lists(weights, min_size=1, max_size=2),
    st.lists(weights, max_size=2),
    st.data(),
)
def test_in_every_set_that_is_accepted_the_right_answer_wins(
    drop: bool,
    truths: list[float],
    judges: list[float],
    others: list[float],
    data: st.DataObject,
) -> None:
    known = data.draw(st.lists(st.booleans(), min_size=len(truths), max_size=len(truths)))
    assume(any(known))
    parts: dict[str, tuple[Part, float]] = {}
    for number, weight in enumerate(truths):
        parts[f"truth {number}"] = (truth(1.0 if known[number] else None), weight)
    for number, weight in enumerate(judges):
        said = data.draw(values), data.draw(values)
        parts[f"judge {number}"] = (judge(*said), weight)
    for number, weight in enumerate(others):
        same = data.draw(values)
        parts[f"other {number}"] = (Part("other", same, same), weight)
    try:
        right, wrong = pay(parts, drop=drop)
    except RewardError:
        assume(False)
        raise
    said = [part.values for part, _ in parts.values()]
    for score, answer, other in ((right, "right", "wrong"), (wrong, "wrong", "right")):
        failed = any(v[answer] is None and v[other] is not None for v in said)
        assert (score.value is None) == failed
    assert None in (right.value, wrong.value) or right.value > wrong.value


@given(st.booleans(), weights, weights, weights)
def test_a_set_that_is_refused_would_have_let_a_wrong_answer_win(
    drop: bool, truth_weight: float, judge_weight: float, other_weight: float
) -> None:
    def combine(right: float | None, wrong: float | None, other: float | None) -> float:
        scores = {}
        for name, said in (("right", right), ("wrong", wrong)):
            truth_says = float(name == "right")
            if drop and said is not None and (said - 0.5) * (truth_says - 0.5) < 0:
                said = truth_says
            given = [(truth_weight, truth_says), (other_weight, other), (judge_weight, said)]
            there = [(weight, value) for weight, value in given if value is not None]
            scores[name] = sum(w * v for w, v in there) / sum(w for w, _ in there)
        return scores["right"] - scores["wrong"]

    parts: Mapping[str, tuple[Reward, float]] = {
        "truth": (truth(), truth_weight),
        "judge": (judge(0.0, 1.0), judge_weight),
        "other": (Part("other", 1.0, 1.0), other_weight),
    }
    try:
        RewardSet(parts, drop_contradicted=drop)
    except RewardError:
        said = (0.0, 0.5, 1.0)
        assert min(combine(*all_said) for all_said in product(said, said, said)) < 1e-5


def test_a_judge_that_outweighs_the_truth_is_refused_at_once() -> None:
    with pytest.raises(RewardError, match="judge can outvote the truth of label") as caught:
        pay({"label": (truth(), 0.3), "judge": (judge(1, 1), 0.5)}, drop=False)
    assert "label 0.375, judge 0.625" in str(caught.value)
    assert "drop_contradicted=True" in str(caught.value)


@pytest.mark.parametrize(
    "parts",
    [
        {"label": (truth(), 0.5), "judge": (judge(1, 1), 0.5)},
        {
            "label": (truth(), 0.5),
            "a": (judge(1, 1), 0.3),
            "b": (judge(1, 1), 0.3),
        },
        {"label": (truth(), 0.5), "f1": (truth(), 0.2), "judge": (judge(1, 1), 0.3)},
    ],
)
def test_equal_weights_several_judges_and_the_lightest_truth_count(parts) -> None:
    with pytest.raises(RewardError, match="can outvote"):
        pay(parts, drop=False)


def test_a_light_truth_wins_over_judgements_that_may_not_contradict_it() -> None:
    """Right, judge unsure: 0.01 + 0.25 + 0.49; wrong, judge overruled: 0.49."""
    parts = {
        "label": (truth(), 0.01),
        "judge": (judge(0.5, 1), 0.5),
        "format": (Part("format", 1.0, 1.0), 0.49),
    }
    right, wrong = pay(parts, drop=True)
    assert (right.value, wrong.value) == pytest.approx((0.75, 0.49))


def test_a_truth_of_no_weight_to_speak_of_is_refused_also_then() -> None:
    parts = {"label": (truth(), 1e-7), "judge": (judge(0.5, 1), 1.0)}
    with pytest.raises(RewardError, match=r"give the truth more weight\.$"):
        pay(parts, drop=True)


def test_judgements_alone_or_of_no_weight_are_fine() -> None:
    assert pay({"judge": (judge(0.2, 0.9), 1.0)}, drop=False)[1].value == 0.9
    right, _ = pay({"label": (truth(), 0.1), "judge": (judge(0.2, 0.9), 0.0)}, drop=False)
    assert right.value == 1.0


def test_a_contradicted_judgement_counts_as_the_truth_and_says_so() -> None:
    right, wrong = pay({"label": (truth(), 0.3), "judge": (judge(0.2, 0.9), 0.5)})
    assert (right.value, wrong.value) == (1.0, 0.0)
    assert wrong.breakdown == {"label": 0.0, "judge": 0.0}
    said = "judge: counts as the truth, which contradicts it: it said 0.9 (said 0.9)"
    assert said in wrong.reason


def test_a_judgement_on_the_side_of_the_truth_stays() -> None:
    right, wrong = pay({"label": (truth(), 0.3), "judge": (judge(0.9, 0.2), 0.5)})
    assert right.value == pytest.approx(0.75 / 0.8)
    assert wrong.value == pytest.approx(0.1 / 0.8)


def test_without_a_known_truth_the_judge_decides() -> None:
    right, wrong = pay({"label": (truth(None), 0.3), "judge": (judge(0.2, 0.9), 0.5)})
    assert (right.value, wrong.value) == (0.2, 0.9)


@given(values, values)
def test_a_person_overrides_the_truth_and_the_judge(said: float | None, also: float | None) -> None:
    right, wrong = pay(
        {
            "person": (Part("human", 1.0, 0.0), 0.1),
            "label": (Part("truth", 0.0, 1.0), 0.6),
            "judge": (judge(said, also), 0.3),
        },
        drop=False,
    )
    assert (right.value, wrong.value) == (1.0, 0.0)
    assert right.breakdown["label"] is None
    assert "label: dropped, as a person decided: it said 0" in right.reason
