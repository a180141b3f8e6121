"""Several judges that vote; who has no verdict abstains."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence

from groupwise.core import JudgeError
from groupwise.inference import Usage, on_shared_loop
from groupwise.judges.judge import Judge, NoVerdict, Question, Verdict
from groupwise.judges.ledger import Ledger, StopSettings
from groupwise.judges.versioned import Versioned


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
        self.ledger = Ledger(name, StopSettings(max_no_verdict_rate=1.0))

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
        results = await asyncio.gather(*(judge.judge(question) for judge in self.judges))
        result = self._count(results)
        self.ledger.record(result)
        return result

    def _count(self, results: Sequence[Verdict | NoVerdict]) -> Verdict | NoVerdict:
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
