"""What a candidate is worth beside rivals that use the same labels without training."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import get_args

from groupwise.evaluation import Prediction, compare_pairs
from groupwise.learning.settings import Rival

USED = "learned_used"
"""Field of a rival's prediction: how many learned items the answer rests on."""


@dataclass(frozen=True, slots=True)
class RivalResult:
    """How a candidate compares with a rival on the sessions that test.

    Attributes:
        name: of the rival.
        num_items, num_sessions: that both were asked about.
        accuracy, candidate: share of right answers of the rival and of the candidate, in [0, 1].
        gain: of the candidate over the rival, in [-1, 1].
        low, high: ends of its 95 % interval, by sessions.
        num_used: mean number of learned items that an answer of the rival rests on: those in the
            prompt; of ``memory``, the share of items that it answers itself.
        seconds, candidate_seconds: per item, the mean over those that both were timed at.
    """

    name: str
    num_items: int
    num_sessions: int
    accuracy: float
    candidate: float
    gain: float
    low: float
    high: float
    num_used: float
    seconds: float | None
    candidate_seconds: float | None

    @property
    def is_beaten(self) -> bool:
        """Whether the candidate is better by more than chance."""
        return self.low > 0

    @property
    def is_better(self) -> bool:
        """Whether the rival is better by more than chance."""
        return self.high < 0


def compare_rivals(predictions: Sequence[Prediction], candidate: str) -> tuple[RivalResult, ...]:
    """Return how a candidate compares with each rival that answered.

    Args:
        predictions: of candidate and rivals, perhaps of others, to the same items.
        candidate: its name.
    """
    answered = {one.policy for one in predictions}
    return tuple(
        _compare(predictions, name, candidate) for name in get_args(Rival) if name in answered
    )


def _compare(predictions: Sequence[Prediction], rival: str, candidate: str) -> RivalResult:
    [found] = compare_pairs(predictions, [(rival, candidate)])
    own, other = (
        {one.example_id: one for one in predictions if one.policy == name}
        for name in (rival, candidate)
    )
    pairs = [(one.latency_s, other[name].latency_s) for name, one in own.items()]
    timed = [(a, b) for a, b in pairs if a is not None and b is not None]
    return RivalResult(
        name=rival,
        num_items=found.n,
        num_sessions=found.num_clusters,
        accuracy=fmean(one.is_correct for one in own.values()),
        candidate=fmean(one.is_correct for one in other.values()),
        gain=found.difference,
        low=found.low,
        high=found.high,
        num_used=fmean(one.fields[USED] for one in own.values()),
        seconds=fmean(a for a, _ in timed) if timed else None,
        candidate_seconds=fmean(b for _, b in timed) if timed else None,
    )
