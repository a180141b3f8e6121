import pytest
from counting_judge import CountingJudge

from groupwise.core import Completion, JudgeError, Message, RewardError, Score, make_example
from groupwise.judges import NoVerdict, Question, Verdict
from groupwise.rewards import Judged, LabelMatch, LabelParser, RewardSet

PARSER = LabelParser(labels=("yes", "no"))
PAYS = {"True": 1.0, "False": 0.0}


class Echo(CountingJudge):
    """Decides what the answer says."""

    name, labels = "echo", ("True", "False")

    def decide(self, question):
        said = question.texts["answer"]
        if said == "late":
            return NoVerdict("timeout", "no reply within 60 s", self.version)
        if said == "stop":
            raise JudgeError("too many questions had no verdict")
        sure = {"yes": 0.9, "no": 0.2, "flip": 0.6}[said]
        label = "True" if sure > 0.5 else "False"
        return Verdict(
            label,
            0.0 if said == "flip" else max(sure, 1 - sure),
            {"True": sure, "False": 1 - sure},
            self.version,
            is_flipped=said == "flip",
        )


def ask(example, completion):
    if not completion.text:
        return Score(0.0, "empty answer", invalid=True)
    return Question({"question": example.prompt[-1].text, "answer": completion.text})


def make_rows(*texts):
    example = make_example([Message("user", "?")], cluster="g", label="yes")
    return [example] * len(texts), [Completion(text) for text in texts]


def test_a_batch_is_judged_at_once_and_in_order():
    judge = Echo()
    scores = Judged(judge, ask=ask, pay=PAYS).score_batch(
        *make_rows("yes", "", "late", "no", "flip")
    )
    assert [score.value for score in scores] == [0.9, 0.0, None, pytest.approx(0.2), None]
    assert [score.invalid for score in scores] == [False, True, False, False, False]
    assert "timeout" in scores[2].reason
    assert judge.most_open == 4


def test_a_verdict_that_is_not_sure_enough_has_no_value():
    reward = Judged(Echo(), ask=ask, pay=PAYS, min_confidence=0.85)
    scores = reward.score_batch(*make_rows("yes", "no"))
    assert [score.value for score in scores] == [0.9, None]
    assert "below 0.85" in scores[1].reason


def test_a_function_may_say_what_a_verdict_pays():
    reward = Judged(Echo(), ask=ask, pay=lambda verdict, *_: verdict.probabilities["False"])
    (example,), (completion,) = make_rows("no")
    assert reward(example, completion).value == pytest.approx(0.8)


@pytest.mark.parametrize("pay", [{"True": 1.0}, {**PAYS, "tie": 0.5}, {"True": 2.0, "False": 0.0}])
def test_every_label_is_paid(pay):
    with pytest.raises(RewardError, match="every label"):
        Judged(Echo(), ask=ask, pay=pay)


def test_in_a_set_the_judge_gets_the_whole_batch_and_cannot_outvote_the_truth():
    judge = Echo()
    judged = Judged(judge, ask=ask, pay=PAYS)
    match = LabelMatch(PARSER)
    with pytest.raises(RewardError, match="outvote"):
        RewardSet({"truth": (match, 0.3), "judge": (judged, 0.5)})
    rewards = RewardSet({"truth": (match, 0.6), "judge": (judged, 0.4)})
    scores = rewards.score_batch(*make_rows("yes", "no"))
    assert [score.value for score in scores] == [pytest.approx(0.96), pytest.approx(0.08)]
    assert judge.most_open == 2


def test_a_judge_that_stops_stops_the_scoring():
    with pytest.raises(JudgeError, match="too many"):
        Judged(Echo(), ask=ask, pay=PAYS).score_batch(*make_rows("yes", "stop"))
