"""Judges made of judges: pairs in both orders, and panels."""

from collections import deque

import pytest

from groupwise.core import JudgeError
from groupwise.inference.model import Usage
from groupwise.judges import (
    NoVerdict,
    PairwiseJudge,
    Panel,
    Question,
    Verdict,
    judge_all,
    swap_pair,
)

PAIR = ("first", "second")


class Scripted:
    """Gives what a function says: a label, a Verdict, or None for no verdict."""

    def __init__(self, say, labels=("True", "False"), version="v"):
        self.say, self.labels, self.version, self.name = say, labels, version, "scripted"
        self.asked = []

    def describe(self):
        return {"version": self.version}

    async def judge(self, question):
        self.asked.append(question)
        said = self.say(question)
        if said is None:
            return NoVerdict("timeout", "late", self.version, Usage(1, 5))
        if isinstance(said, Verdict):
            return said
        chances = {label: float(label == said) for label in self.labels}
        return Verdict(said, 1.0, chances, self.version, usage=Usage(1, 5))


def decide(judge, question):
    return judge_all(judge, [question])[0]


def pair(first, second):
    return Question({"question": "q", "first": first, "second": second})


def longer(question):
    first, second = (len(question.texts[name]) for name in PAIR)
    return "first" if first > second else "second"


def test_a_pair_judged_alike_in_both_orders_stands():
    inner = Scripted(longer, PAIR)
    verdict = decide(PairwiseJudge(inner), pair("long answer", "short"))
    assert (verdict.label, verdict.confidence, verdict.is_flipped) == ("first", 1.0, False)
    assert verdict.probabilities == {"first": 1.0, "second": 0.0, "tie": 0.0}
    assert [question.texts["first"] for question in inner.asked] == ["long answer", "short"]
    assert verdict.usage == Usage(2, 10)


def test_a_judge_that_always_says_first_has_only_ties():
    judge = PairwiseJudge(Scripted(lambda _: "first", PAIR))
    verdicts = judge_all(judge, [pair("a" * n, "b") for n in range(5)])
    assert {(v.label, v.confidence, v.is_flipped) for v in verdicts} == {("tie", 0.0, True)}
    assert judge.ledger.num_flipped == 5
    assert verdicts[0].position_bias == 1.0


@pytest.mark.parametrize(
    ("given", "swapped", "label", "is_flipped"),
    [
        ("tie", "tie", "tie", False),
        ("second", "first", "second", False),
        ("first", "tie", "tie", True),
        ("second", "second", "tie", True),
    ],
)
def test_orders_are_mapped_back(given, swapped, label, is_flipped):
    said = deque([given, swapped])
    inner = Scripted(lambda _: said.popleft(), (*PAIR, "tie"))
    verdict = decide(PairwiseJudge(inner), pair("a", "b"))
    assert (verdict.label, verdict.is_flipped) == (label, is_flipped)


def test_one_order_without_a_verdict_is_no_verdict_and_costs_both():
    judge = PairwiseJudge(Scripted(lambda q: None if q.texts["first"] == "b" else "first", PAIR))
    result = decide(judge, pair("a", "b"))
    assert (result.cause, result.usage, result.judge) == ("timeout", Usage(2, 10), judge.version)


def test_what_is_no_pair_is_refused():
    with pytest.raises(JudgeError, match="compare pairs"):
        PairwiseJudge(Scripted(None))
    with pytest.raises(JudgeError, match="no pair"):
        swap_pair(Question({"first": "a"}))
    assert swap_pair(swap_pair(pair("a", "b"))) == pair("a", "b")


def sit(*said, **named):
    return Panel([Scripted(lambda _, s=s: s, version=str(n)) for n, s in enumerate(said)], **named)


FLIPPED = Verdict("True", 0.0, {"True": 0.5, "False": 0.5}, "v", is_flipped=True)


@pytest.mark.parametrize(
    ("said", "label", "confidence"),
    [
        (("True", "True", "False"), "True", 2 / 3),
        (("True", "True", None), "True", 2 / 3),
        (("False", "False", FLIPPED), "False", 2 / 3),
        (("True", "False", None), None, None),
        (("True", None, None), None, None),
        ((None, None, None), None, None),
        (("True", FLIPPED, FLIPPED), None, None),
    ],
)
def test_a_panel_goes_by_the_majority_of_those_who_vote(said, label, confidence):
    panel = sit(*said)
    result = decide(panel, Question({}))
    if label is None:
        assert (type(result), result.cause) == (NoVerdict, "undecided")
    else:
        assert (result.label, result.confidence) == (label, pytest.approx(confidence))
        assert result.probabilities[label] == pytest.approx(
            1.0 if None in said or FLIPPED in said else 2 / 3
        )
    assert result.usage.num_calls == sum(one is not FLIPPED for one in said)


def test_a_quorum_may_be_set_and_judges_have_to_fit():
    assert decide(sit("True", None, None, quorum=1), Question({})).label == "True"
    assert isinstance(decide(sit("True", "True", None, quorum=3), Question({})), NoVerdict)
    with pytest.raises(JudgeError, match="quorum"):
        sit("True", "True", quorum=3)
    with pytest.raises(JudgeError, match="no panel"):
        sit("True")
    with pytest.raises(JudgeError, match="2 sets"):
        Panel([Scripted(None), Scripted(None, PAIR)])


def test_versions_change_with_what_is_inside():
    one, other = Scripted(None, PAIR), Scripted(None, PAIR, "w")
    assert PairwiseJudge(one).version != PairwiseJudge(other).version
    assert Panel([one, one]).version != Panel([one, other]).version
