import asyncio

import pytest
from counting_judge import CountingJudge

from groupwise.core import JudgeError
from groupwise.inference import run_on_shared_loop
from groupwise.judges import NoVerdict, Question, Verdict, judge_all


class LengthJudge(CountingJudge):
    """Says which of two answers is longer."""

    name, labels = "length", ("first", "second")

    def decide(self, question):
        lengths = {label: len(question.texts[label]) for label in self.labels}
        if lengths["first"] == lengths["second"]:
            return NoVerdict("undecided", "equally long", self.version)
        if not any(lengths.values()):
            raise JudgeError("no answers")
        label = max(lengths, key=lengths.get)
        return Verdict(label, 1.0, {n: float(n == label) for n in self.labels}, self.version)


def ask(first, second):
    return Question({"first": first, "second": second})


def test_verdicts_come_in_order_and_at_once():
    judge = LengthJudge()
    questions = [ask("a" * n, "b" * 5) for n in range(10)]
    seen = []
    verdicts = judge_all(judge, questions, report_progress=lambda *done: seen.append(done))
    assert [getattr(v, "label", None) for v in verdicts] == ["second"] * 5 + [None] + ["first"] * 4
    assert judge.most_open == 10
    assert seen[-1] == (10, 10)


def test_a_failing_judge_ends_the_batch():
    class Failing(LengthJudge):
        async def judge(self, question):
            if question.texts["first"] == "stop":
                raise JudgeError("too many failures")
            await asyncio.sleep(60)

    with pytest.raises(JudgeError, match="too many"):
        judge_all(Failing(), [ask("a", ""), ask("stop", "")])


def test_the_shared_loop_does_not_wait_for_itself():
    async def wait():
        judge_all(LengthJudge(), [])

    with pytest.raises(RuntimeError, match="await"):
        run_on_shared_loop(wait())


@pytest.mark.parametrize(
    ("label", "confidence", "probabilities"),
    [("yes", 1.5, {"yes": 1.0}), ("yes", 1.0, {"yes": -0.1}), ("yes", 1.0, {"no": 1.0})],
)
def test_what_cannot_be_a_verdict_is_refused(label, confidence, probabilities):
    with pytest.raises(JudgeError):
        Verdict(label, confidence, probabilities, "0")
