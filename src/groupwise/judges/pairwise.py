"""A judge of pairs that is asked in both orders: who changes its mind with the order has none."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from groupwise.core import JudgeError
from groupwise.inference import Usage, on_shared_loop
from groupwise.judges.judge import Judge, NoVerdict, Question, Verdict
from groupwise.judges.ledger import Ledger, StopSettings
from groupwise.judges.versioned import Versioned

FIRST, SECOND, TIE = "first", "second", "tie"
_SWAPPED = {FIRST: SECOND, SECOND: FIRST, TIE: TIE}


class PairwiseJudge(Versioned):
    """Puts the question's texts ``first`` and ``second`` to a judge as given and swapped.

    Equal verdicts stand, with the mean of both probabilities. Where the verdicts differ, the
    result is a tie, flipped, with confidence 0; it is counted in ``ledger``.

    Args:
        inner: decides one order; its labels are ``first`` and ``second``, perhaps ``tie``.

    Raises:
        JudgeError: if ``inner`` has other labels.
    """

    labels = (FIRST, SECOND, TIE)

    def __init__(self, inner: Judge, *, name: str = "pairwise") -> None:
        if not {FIRST, SECOND} <= set(inner.labels) <= set(self.labels):
            raise JudgeError(
                "this judge does not compare pairs",
                got=f"the labels {', '.join(inner.labels)}",
                expected=", ".join(self.labels),
            )
        self.inner = inner
        self.name = name
        self.ledger = Ledger(name, StopSettings(max_no_verdict_rate=1.0))

    def describe(self) -> Mapping[str, object]:
        """Return all that verdicts depend on beside the question."""
        return {"kind": type(self).__name__, "inner": dict(self.inner.describe())}

    @on_shared_loop
    async def judge(self, question: Question) -> Verdict | NoVerdict:
        """Return the verdict of both orders, or why there is none.

        Raises:
            JudgeError: as the inner judge, or if the question is no pair.
        """
        both = await asyncio.gather(
            self.inner.judge(question), self.inner.judge(swap_pair(question))
        )
        result = self._combine(*both)
        self.ledger.record(result)
        return result

    def _combine(
        self, given: Verdict | NoVerdict, swapped: Verdict | NoVerdict
    ) -> Verdict | NoVerdict:
        usage = given.usage + swapped.usage
        for side in (given, swapped):
            if isinstance(side, NoVerdict):
                return replace(side, judge=self.version, usage=usage)
        assert isinstance(given, Verdict)
        assert isinstance(swapped, Verdict)
        return self._merge(given, swapped, usage)

    def _merge(self, given: Verdict, swapped: Verdict, usage: Usage) -> Verdict:
        one = {label: given.probabilities.get(label, 0.0) for label in self.labels}
        other = {label: swapped.probabilities.get(_SWAPPED[label], 0.0) for label in self.labels}
        means = {label: min(1.0, (one[label] + other[label]) / 2) for label in self.labels}
        is_flipped = given.label != _SWAPPED[swapped.label]
        label = TIE if is_flipped else given.label
        confidence = 0.0 if is_flipped else (given.confidence + swapped.confidence) / 2
        return Verdict(
            label,
            confidence,
            means,
            self.version,
            reason="\n\n".join(filter(None, (given.reason, swapped.reason))),
            usage=usage,
            is_cached=given.is_cached and swapped.is_cached,
            is_flipped=is_flipped,
            position_bias=max(abs(one[name] - other[name]) for name in self.labels),
        )


def swap_pair(question: Question) -> Question:
    """Return the question with its two answers in the opposite order.

    Raises:
        JudgeError: if it does not have both.
    """
    if not {FIRST, SECOND} <= question.texts.keys():
        raise JudgeError(
            "the question is no pair",
            got=", ".join(question.texts) or "no texts",
            expected=f"texts named {FIRST} and {SECOND}",
        )
    swapped = {FIRST: question.texts[SECOND], SECOND: question.texts[FIRST]}
    return replace(question, texts={**question.texts, **swapped})
