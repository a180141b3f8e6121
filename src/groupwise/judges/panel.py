"""Judges made of other judges: several that vote, and one that is asked about pairs in both orders.

Who has no verdict abstains, and who changes its mind with the order has none.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from groupwise.core import JudgeError
from groupwise.inference.model import Usage, on_shared_loop
from groupwise.judges.judge import (
    Judge,
    Ledger,
    NoVerdict,
    Question,
    StopSettings,
    Verdict,
    Versioned,
)


class Panel(Versioned):
    """Decides by the majority of the votes cast.

    A judge without a verdict, or with a flipped one, abstains. There is no verdict if fewer than
    ``quorum`` judges vote or if no label has more than half of the votes.

    Args:
        judges: at least two, all with the same labels.
        quorum: votes needed; None: more than half of the judges.
        name: for people.

    Raises:
        JudgeError: if the judges do not fit together or the quorum cannot be reached.
    """

    def __init__(
        self, judges: Sequence[Judge], *, quorum: int | None = None, name: str = "panel"
    ) -> None:
        labels = {tuple(sorted(judge.labels)) for judge in judges}
        if len(judges) < 2 or len(labels) != 1:
            raise JudgeError(
                "these judges are no panel",
                got=f"{len(judges)} judges with {len(labels)} sets of labels",
                expected="at least 2 judges with the same labels",
            )
        self.quorum = len(judges) // 2 + 1 if quorum is None else quorum
        if not 1 <= self.quorum <= len(judges):
            raise JudgeError(
                "the quorum is wrong", got=quorum, expected=f"1 to {len(judges)}, the judges"
            )
        self.judges = tuple(judges)
        self.labels = tuple(judges[0].labels)
        self.name = name

    def describe(self) -> Mapping[str, object]:
        """Return all that verdicts depend on beside the question."""
        members = [dict(judge.describe()) for judge in self.judges]
        return {"kind": type(self).__name__, "quorum": self.quorum, "judges": members}

    @on_shared_loop
    async def judge(self, question: Question) -> Verdict | NoVerdict:
        """Return the majority's verdict, or why there is none.

        The probability of a label is its share of the votes cast; the confidence is the winner's
        share of all judges.
        """
        import asyncio  # not for whoever only reads a config

        results = await asyncio.gather(*(judge.judge(question) for judge in self.judges))
        usage = sum((result.usage for result in results), Usage())
        cast = [r for r in results if isinstance(r, Verdict) and not r.is_flipped]
        votes = Counter(verdict.label for verdict in cast)
        tally = ", ".join(f"{label}: {votes[label]}" for label in self.labels)
        told = f"{len(cast)} of {len(results)} judges voted ({tally})"
        winner = max(self.labels, key=lambda label: votes[label])
        if len(cast) < self.quorum or 2 * votes[winner] <= len(cast):
            return NoVerdict("undecided", told, self.version, usage)
        return Verdict(
            winner,
            votes[winner] / len(results),
            {label: votes[label] / len(cast) for label in self.labels},
            self.version,
            reason=told,
            usage=usage,
            is_cached=all(verdict.is_cached for verdict in cast),
        )


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
        import asyncio

        given, swapped = await asyncio.gather(
            self.inner.judge(question), self.inner.judge(swap_pair(question))
        )
        usage = given.usage + swapped.usage
        if isinstance(given, NoVerdict) or isinstance(swapped, NoVerdict):
            silent = given if isinstance(given, NoVerdict) else swapped
            result = replace(silent, judge=self.version, usage=usage)
            self.ledger.record(result)
            return result
        one = {label: given.probabilities.get(label, 0.0) for label in self.labels}
        other = {label: swapped.probabilities.get(_SWAPPED[label], 0.0) for label in self.labels}
        is_flipped = given.label != _SWAPPED[swapped.label]
        verdict = Verdict(
            TIE if is_flipped else given.label,
            0.0 if is_flipped else (given.confidence + swapped.confidence) / 2,
            {label: min(1.0, (one[label] + other[label]) / 2) for label in self.labels},
            self.version,
            reason="\n\n".join(filter(None, (given.reason, swapped.reason))),
            usage=usage,
            is_cached=given.is_cached and swapped.is_cached,
            is_flipped=is_flipped,
            position_bias=max(abs(one[name] - other[name]) for name in self.labels),
        )
        self.ledger.record(verdict)
        return verdict


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
