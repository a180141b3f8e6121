import math
import sys
from collections.abc import Mapping
from itertools import product

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from groupwise.core import Completion, DataError, Example, Message, RewardError, Score, make_example
from groupwise.rewards import (
    AnswerFormat,
    HumanOverride,
    LabelMatch,
    LabelParser,
    Lowest,
    Parsed,
    Reward,
    RewardSet,
    describe_weights,
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


def fail(error: Exception) -> Reward:
    def score(example: Example, completion: Completion) -> Score:
        raise error

    return score


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


def test_weights_are_shares_and_one_reward_may_stand_twice() -> None:
    own, other = Fixed(1.0), Fixed(0.0)
    parts = {"x": (own, 1), "fixed": (other, 2), "y": (other, 1)}
    assert RewardSet(parts).weights == {"x": 0.25, "fixed": 0.5, "y": 0.25}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "no rewards"),
        ({"a": (Fixed(1.0), -1)}, "weight of reward 'a'"),
        ({"a": (Fixed(1.0), math.nan)}, "weight of reward 'a'"),
        ({"a": (Fixed(1.0), math.inf)}, "weight of reward 'a'"),
        ({"a": (Fixed(1.0), 0), "b": (Fixed(1.0), 0)}, "weight 0"),
        ({"a": (Fixed(1.0, kind="judge"), 1)}, "'fixed' has an unknown kind; got 'judge'"),
    ],
)
def test_a_set_that_cannot_work_is_refused(given, message: str) -> None:
    with pytest.raises(RewardError, match=message):
        RewardSet(given)


def test_a_reward_that_raises_is_named_and_never_a_number() -> None:
    with pytest.raises(RewardError, match=r"reward 'bad' failed on example .*KeyError"):
        RewardSet({"bad": (fail(KeyError("x")), 1)}).score(ITEM, Completion(""))
    with pytest.raises(DataError, match="gone"):
        RewardSet({"bad": (fail(DataError("gone")), 1)}).score(ITEM, Completion(""))


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


def test_a_completion_is_parsed_once_for_all_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    parse = LabelParser.parse

    def count(self: LabelParser, text: str, example: Example | None = None) -> Parsed:
        parsed.append(text)
        return parse(self, text, example)

    same = LabelParser(labels=PARSER.labels)
    rewards = RewardSet(
        {"label": (LabelMatch(PARSER), 1), "format": (AnswerFormat(same), 1)}
        | {"low": (Lowest("low", [LabelMatch(PARSER), AnswerFormat(PARSER)]), 1)}
    )
    unlabelled = make_example([Message("user", "?")], cluster="g")
    texts = ["on-task", "off-task", "what"]
    rewards.score_batch([ITEM] * 3, [Completion(text) for text in texts])
    monkeypatch.setattr(LabelParser, "parse", count)
    scores = rewards.score_batch([ITEM] * 3, [Completion(text) for text in texts])
    assert [score.value for score in scores] == [1.0, pytest.approx(1 / 3), 0.0]
    assert sorted(parsed) == sorted(texts * 2)  # the lowest asks for itself
    parsed.clear()
    assert RewardSet({"label": (LabelMatch(PARSER), 1)}).score(
        unlabelled, Completion("x")
    ) == Score(None, "label: no label", {"label": None})
    assert parsed == []


def test_the_lowest_of_parts_that_do_not_apply_has_no_value_and_stops_no_batch() -> None:
    unlabelled = make_example([Message("user", "?")], cluster="g")
    rewards = RewardSet({"low": (Lowest("low", [LabelMatch(PARSER)]), 1)})
    scores = rewards.score_batch([unlabelled, ITEM], [Completion("on-task")] * 2)
    assert [score.value for score in scores] == [None, 1.0]


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


@pytest.mark.parametrize("unit", [1.0, sys.float_info.max, 1e-300])
def test_shares_are_the_proportion_and_add_up(unit: float) -> None:
    given = {"label": unit, "format": 0.25 * unit, "logged": 0.0}
    rewards = RewardSet({name: (Fixed(1.0), weight) for name, weight in given.items()})
    assert rewards.weights == {"label": 0.8, "format": 0.2, "logged": 0.0}


def test_the_weights_that_count_are_one_line() -> None:
    weights = {"label": 0.3, "judge": 0.5, "verifier": 0.2}
    assert describe_weights(weights) == "label 0.3, judge 0.5, verifier 0.2"
    line = "label 0.375, judge 0.625 (absent: verifier)"
    assert describe_weights(weights, absent=["verifier", "verifier"]) == line
    with pytest.raises(RewardError, match="no such reward in the set; got 'x'"):
        describe_weights(weights, absent=["x"])
    with pytest.raises(RewardError, match="no reward with a weight is left"):
        describe_weights(weights, absent=["label", "judge", "verifier"])


def make_item(label: str | None, human: object = None) -> Example:
    fields = {} if human is None else {"human_label": human}
    return make_example([Message("user", "?")], cluster="g", label=label, fields=fields)


def make_set(value: float | None) -> RewardSet:
    match, judge = LabelMatch(PARSER), Fixed(value, kind="judgement")
    return RewardSet(
        {"human": (HumanOverride(match), 1.0), "label": (match, 0.3), "judge": (judge, 0.5)},
        drop_contradicted=True,
    )


def test_a_persons_label_takes_the_place_of_the_examples() -> None:
    reward, said = HumanOverride(LabelMatch(PARSER)), Completion("on-task")
    assert reward(make_item("off-task", "on-task"), said).value == 1.0
    assert reward(make_item("on-task", "off-task"), said).value == 0.0
    assert reward(make_item(None, "on-task"), said).value == 1.0
    assert reward(make_item("on-task", "on-task"), Completion("??")).invalid
    assert reward(make_item("on-task"), said) == Score(None, "nobody corrected this")
    with pytest.raises(RewardError, match="no text; got 1"):
        reward(make_item("on-task", 1), said)
    with pytest.raises(RewardError, match="no answer can give"):
        reward(make_item("on-task", "maybe"), said)


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


ASKED = make_example([Message("user", "?")], cluster="g")
RIGHT, WRONG = Completion("right"), Completion("wrong")

values = st.one_of(st.none(), st.floats(0, 1), st.sampled_from([0.0, 0.5, 1.0]))
weights = st.one_of(st.floats(0.001, 1), st.sampled_from([0.2, 0.3, 0.5]))


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
        value = self.paid[completion.text] if self.is_there else None
        return Score(value, f"said {value}")


def say(kind: str, right: float | None, wrong: float | None) -> Part:
    """Return what pays the right and the wrong answer; without any value it is not there."""
    is_there = not (right is None and wrong is None)
    return Part(kind, {"right": right, "wrong": wrong}, is_there=is_there)


def truth(value: float | None = 1.0) -> Part:
    return say("truth", value, None if value is None else 1 - value)


def judge(right: float | None, wrong: float | None) -> Part:
    return say("judgement", right, wrong)


def pay(parts: Mapping[str, tuple[Reward, float]], *, drop: bool = True) -> tuple[Score, Score]:
    rewards = RewardSet(parts, drop_contradicted=drop)
    return rewards.score(ASKED, RIGHT), rewards.score(ASKED, WRONG)


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
        parts[f"other {number}"] = (say("other", same, same), weight)
    try:
        right, wrong = pay(parts, drop=drop)
    except RewardError:
        assume(False)
        raise
    said = [part.paid for part, _ in parts.values()]
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
        "other": (say("other", 1.0, 1.0), other_weight),
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
        "format": (say("format", 1.0, 1.0), 0.49),
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


def test_without_a_known_truth_the_judge_decides_for_every_answer() -> None:
    parts = {"label": (truth(None), 0.3), "judge": (judge(0.2, 0.9), 0.5)}
    assert RewardSet(parts, drop_contradicted=True).weigh(ASKED) == {"judge": 1.0}
    assert [score.value for score in pay(parts)] == [0.2, 0.9]
    assert [score.value for score in pay({"label": (truth(None), 1.0)})] == [None, None]


@given(values, values)
def test_a_person_overrides_the_truth_and_the_judge(said: float | None, also: float | None) -> None:
    right, wrong = pay(
        {
            "person": (say("human", 1.0, 0.0), 0.1),
            "label": (say("truth", 0.0, 1.0), 0.6),
            "judge": (judge(said, also), 0.3),
        },
        drop=False,
    )
    assert (right.value, wrong.value) == (1.0, 0.0)
    assert right.breakdown["label"] is None
    assert "label: dropped, as a person decided: it said 0" in right.reason


def test_if_a_person_s_part_fails_nobody_decides() -> None:
    parts = {
        "person": (say("human", 1.0, None), 0.1),
        "label": (say("truth", 0.0, 1.0), 0.8),
        "form": (say("format", 1.0, 1.0), 0.1),
    }
    assert RewardSet(parts).weigh(ASKED) == {"person": 0.5, "form": 0.5}
    assert [score.value for score in pay(parts)] == [1.0, None]


MISSING_KINDS = ("human", "truth", "judgement", "format", "shaping", "other")


@st.composite
def draw_group(draw: st.DrawFn) -> tuple[RewardSet, list[str]]:
    """A set that is accepted, and the answers of one group; any part may fail on any of them."""
    names = [f"answer {number}" for number in range(draw(st.integers(2, 4)))]
    value = st.none() | st.sampled_from([0.0, 0.2, 0.5, 0.9, 1.0])
    parts: dict[str, tuple[Reward, float]] = {}
    for number in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(MISSING_KINDS))
        part = Part(kind, {name: draw(value) for name in names}, is_there=draw(st.booleans()))
        weight = draw(st.sampled_from([0.01, 0.2, 1.0, 3.0]))
        parts[f"{number} {kind}"] = (part, weight * (20 if kind == "truth" else 1))
    return RewardSet(parts, drop_contradicted=True), names


@given(draw_group())
def test_rows_of_a_group_are_paid_by_the_same_weights(group: tuple[RewardSet, list[str]]) -> None:
    rewards, names = group
    weights = rewards.weigh(ASKED)
    for score in rewards.score_batch([ASKED] * len(names), [Completion(name) for name in names]):
        counted = {name: score.breakdown[name] for name in weights}
        if not weights or None in counted.values():
            assert score.value is None
        else:
            paid = sum(weights[name] * (value or 0.0) for name, value in counted.items())
            assert score.value == pytest.approx(paid)
