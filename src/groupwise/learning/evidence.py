"""Evidence for a gain that holds however often one looks at it, and whenever one stops.

A bettor starts with 1 and stakes a share of what there is on every session's gain. Where the gains
are no better than what is bet against, what the bettor has grows to 1 / level with a probability of
at most ``level``, at any moment and with any number of looks (Ville's inequality): the wealth is
the evidence.

In shapes ``...`` is any number of data sets and G sessions. A session's gain is the mean of its
items' differences, so that every session counts the same, in [-1, 1].

Source: Waudby-Smith & Ramdas 2024, "Estimating means of bounded random variables by betting"
(the capital process); the bettor of many constant shares is Cover's 1991 universal portfolio on a
grid, whose wealth does not depend on the order of sessions.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

NUM_SHARES = 24
_SMALLEST_SHARE = 0.01
_STEPS = 40
Floats = NDArray[np.float64]


def weigh_gains(gains: ArrayLike, margin: float = 0.0) -> Floats:
    """Return the wealth (...) that speaks for a mean gain above the margin."""
    return np.exp(_weigh(_check(gains), margin))


def bound_gain_below(gains: ArrayLike, level: float) -> float:
    """Return the lower end of the mean gain (G,), whatever the number of looks.

    It is the largest margin against which the wealth is 1 / level, at least -1; above it with a
    probability of at most ``level``.
    """
    known, low, high = _check(gains), -1.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if abs(middle) < 1 and _weigh(known, middle) >= -np.log(level):
            low = middle
        else:
            high = middle
    return low


def _check(gains: ArrayLike) -> Floats:
    known = np.asarray(gains, dtype=np.float64)
    if not (np.abs(known) <= 1).all():
        raise ValueError("gains of sessions are means of differences, in [-1, 1]")
    return known


def _weigh(gains: Floats, margin: float) -> Floats:
    return _mix(np.log1p(_stake(gains, margin)).sum(axis=-2))


def _stake(gains: Floats, margin: float) -> Floats:
    """Return what each share of the grid wins (..., G, shares) with each session, above -1."""
    if not -1 < margin < 1:
        raise ValueError(f"a margin is in (-1, 1), got {margin}")
    # No stake may lose more than there is: the worst session loses 1 + margin.
    shares = np.geomspace(_SMALLEST_SHARE, 0.99, NUM_SHARES) / (1 + margin)
    return (gains[..., None] - margin) * shares


def _mix(wealth: Floats) -> Floats:
    """Return the logarithm of the mean of wealths (..., shares) that are logarithms."""
    top = wealth.max(axis=-1, keepdims=True)
    return top[..., 0] + np.log(np.exp(wealth - top).mean(axis=-1))
