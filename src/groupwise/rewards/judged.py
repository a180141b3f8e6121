"""Reward: what a judge says about an answer. No verdict is no value, never 0."""

from collections.abc import Callable, Mapping, Sequence

from groupwise.core import Completion, Example, RewardError, Score
from groupwise.judges import Judge, NoVerdict, Question, Verdict, judge_all
from groupwise.rewards.reward import BatchReward, RewardKind

Ask = Callable[[Example, Completion], Question | Score]
"""Returns what to ask the judge, or the score of an answer that need not be judged (an invalid
one, for instance)."""
Pay = Callable[[Verdict, Example, Completion], float]
"""Returns what a verdict pays, in [0, 1]."""


class Judged(BatchReward):
    """Pays what a judge's verdict is worth; all completions of a call are judged at once.

    A failed judge and a verdict that flipped when the order was swapped give no value.

    Args:
        judge: any judge.
        ask: makes the question.
        pay: worth of each label (the verdict's probabilities weigh them), or a function of the
            verdict.
        name: in metrics and breakdowns.

    Raises:
        RewardError: if ``pay`` does not name every label of the judge, or pays outside [0, 1].
    """

    kind: RewardKind = "judgement"

    def __init__(
        self,
        judge: Judge,
        *,
        ask: Ask,
        pay: Mapping[str, float] | Pay,
        name: str = "judge",
    ) -> None:
        self.judge, self.ask, self.pay, self.name = judge, ask, pay, name
        if callable(pay):
            return
        wrong = [label for label in judge.labels if not 0.0 <= pay.get(label, -1.0) <= 1.0]
        if wrong or set(pay) != set(judge.labels):
            raise RewardError(
                "a judged reward must pay every label of its judge",
                got=dict(pay),
                expected=f"a number in [0, 1] for each of {', '.join(judge.labels)}",
            )

    def score_batch(
        self, examples: Sequence[Example], completions: Sequence[Completion]
    ) -> list[Score]:
        """Return one score per pair, in order.

        Raises:
            JudgeError: if the judge failed too often.
        """
        pairs = list(zip(examples, completions, strict=True))
        asked = [self.ask(example, completion) for example, completion in pairs]
        verdicts = iter(judge_all(self.judge, [a for a in asked if isinstance(a, Question)]))
        return [
            given if isinstance(given, Score) else self._score(next(verdicts), *pair)
            for given, pair in zip(asked, pairs, strict=True)
        ]

    def _score(
        self, result: Verdict | NoVerdict, example: Example, completion: Completion
    ) -> Score:
        if isinstance(result, NoVerdict):
            return Score(None, f"no verdict ({result.cause}: {result.message})")
        if result.is_flipped:
            return Score(None, "the verdict changed with the order")
        said = f"the judge says {result.label} with confidence {result.confidence:.2f}"
        if callable(self.pay):
            return Score(self.pay(result, example, completion), said)
        mean = sum(self.pay[label] * share for label, share in result.probabilities.items())
        return Score(min(1.0, max(0.0, mean)), said)
