"""Whether a new version may take the place of the served one, over any number of rounds.

A candidate is promoted when it is better on corrected sessions that no version was trained on,
**and** at most a margin worse on the held-out set. Neither claim can make up for the other, and
each needs the candidate's whole level.

Corrected sessions keep coming in, so that claim is weighed by betting (``evidence.py``): looking
again costs nothing. The held-out set is asked once for each candidate, so that claim has a p-value,
which needs fewer sessions. Both hold for any gains of sessions, however rare the losses are.

The k-th candidate has a level of ``level`` / (k (k + 1)). These add up to ``level``: a loop in
which nothing ever becomes better promotes with at most this probability, however long it runs, and
however alike its candidates are (Bonferroni).
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from groupwise.core import derive_seed
from groupwise.learning.evidence import bound_gain_below, weigh_gains

Floats = NDArray[np.float64]
LEVEL = 0.05
MARGIN = 0.02
NUM_DRAWS = 99_999
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

    def reverse(self) -> "Sessions":
        """Return the served version's differences from the candidate."""
        return Sessions(-self.sums, self.sizes)


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

    It is rejected where the same evidence speaks for the opposite of either claim.
    """
    better, not_worse = float(weigh_gains(corrected.gains)), score_loss(held_out, margin)
    worse = float(weigh_gains(-corrected.gains)), score_loss(held_out.reverse(), -margin)
    verdict: Verdict = "undecided"
    if is_promoted(better, not_worse, level):
        verdict = "promoted"
    elif worse[0] >= 1 / level or worse[1] <= level:
        verdict = "rejected"
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


def score_loss(sessions: Sessions, margin: float, *, num_draws: int = NUM_DRAWS) -> float:
    """Return the one-sided p-value of a mean loss of at least the margin, by sessions.

    The share of random weightings of the sessions (Dirichlet), with one more that loses all, whose
    mean is a loss of at least the margin. Student's t lets a version through that rarely
    loses whole sessions: it has not seen what would widen it.

    Source: Gaffke 2005, "Three test statistics for a nonparametric one-sided hypothesis on the mean
    of a nonnegative variable"; Learned-Miller & Thomas 2019, "A new confidence interval for the
    mean of a bounded random variable", which conjectures that it holds for every distribution.
    """
    gains, counts = np.unique(np.append(sessions.gains, -1.0), return_counts=True)
    random = np.random.default_rng(derive_seed(0, "weightings"))
    weights = random.standard_gamma(counts, (num_draws, len(counts)))
    num_losses = int((weights @ (gains + margin) <= 0).sum())
    return (num_losses + 1) / (num_draws + 1)
