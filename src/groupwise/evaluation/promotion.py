"""Whether a new version may take the place of the served one, over any number of rounds.

A candidate is promoted when it is better on corrected sessions that no version was trained on,
**and** at most a margin worse on the held-out set. Neither claim can make up for the other, and
each needs the candidate's whole level.

Corrected sessions keep coming in, so that claim is weighed by betting (``evidence.py``): looking
again costs nothing. The held-out set is asked once for each candidate, so that claim has a p-value,
which needs about half as many items.

The k-th candidate has a level of ``level`` / (k (k + 1)). These add up to ``level``: a loop in
which nothing ever becomes better promotes with at most this probability, however long it runs, and
however alike its candidates are (Bonferroni).
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from groupwise.evaluation.clusters import (
    CR3,
    Floats,
    find_alike_df,
    find_mean,
    find_variance,
)
from groupwise.evaluation.evidence import bound_gain_below, weigh_gains
from groupwise.evaluation.untyped import student_t

LEVEL = 0.05
MARGIN = 0.02
Verdict = Literal["promoted", "rejected", "undecided"]


@dataclass(frozen=True, slots=True)
class Sessions:
    """Differences between a candidate and the served version, by session.

    Attributes:
        sums: (G,) sums of the differences of a session's items, each in [-1, 1].
        sizes: (G,) items of each session, at least 1.
    """

    sums: Floats
    sizes: Floats

    @property
    def gains(self) -> Floats:
        """(G,) mean differences of sessions, in [-1, 1]."""
        return self.sums / self.sizes


@dataclass(frozen=True, slots=True)
class Promotion:
    """What is known of a candidate.

    Attributes:
        verdict: ``undecided`` keeps the served version, and further sessions may still decide.
        level: the candidate's own level, in (0, 1).
        better: wealth that speaks for a gain on corrected sessions; it needs 1 / level.
        corrected_low: lower end of that gain, in [-1, 1], however often one looked.
        not_worse: p-value of a loss of the margin or more on the held-out set.
        margin: how much worse the candidate may be there, in (0, 1).
    """

    verdict: Verdict
    level: float
    better: float
    corrected_low: float
    not_worse: float
    margin: float


def find_level(candidate: int, level: float = LEVEL) -> float:
    """Return the level of the candidate of this number, from 1, of a loop with this level."""
    return level / (candidate * (candidate + 1))


def judge_candidate(
    corrected: Sessions, held_out: Sessions, *, level: float, margin: float = MARGIN
) -> Promotion:
    """Judge a candidate against the served version.

    Args:
        corrected: corrected sessions that neither was trained on.
        held_out: the held-out set.
        level: from ``find_level``.
        margin: how much worse it may be on the held-out set.
    """
    better, not_worse = float(weigh_gains(corrected.gains)), score_loss(held_out, margin)
    is_worse = weigh_gains(-corrected.gains) >= 1 / level or (
        len(held_out.sizes) > 1 and not_worse >= 1 - level
    )
    verdict: Verdict = "rejected" if is_worse else "undecided"
    if is_promoted(better, not_worse, level):
        verdict = "promoted"
    return Promotion(
        verdict=verdict,
        level=level,
        better=better,
        corrected_low=bound_gain_below(corrected.gains, level),
        not_worse=not_worse,
        margin=margin,
    )


def is_promoted(better: float, not_worse: float, level: float) -> bool:
    """Return whether a wealth and a p-value are both enough at this level."""
    return better >= 1 / level and not_worse <= level


def score_loss(sessions: Sessions, margin: float) -> float:
    """Return the one-sided p-value of a mean loss of at least the margin, by sessions.

    Student's t of the mean of items with CR3. It is never less than the chance of sessions without
    any loss where one in 1 / margin would lose all its items: few sessions show no rare loss.

    Args:
        sessions: where two or more are needed; with fewer, p is 1.
        margin: the loss, in (0, 1).
    """
    if len(sessions.sizes) < 2:
        return 1.0
    none_lost = (1 - margin) ** len(sessions.sizes)
    spread = float(np.sqrt(find_variance(sessions.sums, sessions.sizes, CR3)))
    above = float(find_mean(sessions.sums, sessions.sizes)) + margin
    if spread == 0:
        return none_lost if above > 0 else 1.0
    return max(none_lost, float(student_t.sf(above / spread, find_alike_df(sessions.sizes))))
