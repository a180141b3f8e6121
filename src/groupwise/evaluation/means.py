"""Intervals of 95 % of means of measures, also where an outcome is rare or never happens.

Draws of groups of which hardly any has an error spread too little, and where none has one they do
not spread at all: no interval of a share is taken from draws alone.
"""

import numpy as np
from numpy.typing import NDArray

from groupwise.evaluation.intervals import (
    Interval,
    bound_clustered,
    bound_share,
    count_effective,
    divide_sums,
    sum_by_group,
    widen_interval,
)
from groupwise.evaluation.items import Items

Floats = NDArray[np.float64]


def bound_mean(items: Items, *, seed: int) -> Interval | None:
    """Return the interval of the mean of a measure; None if a single group has all items.

    For shares of independent items it is Wilson's. Otherwise it is the one from drawing whole
    groups, for shares widened to Wilson's of the effective number of items.

    Source: Korn & Graubard 1998, "Confidence intervals for proportions with small expected number
    of positive counts estimated from survey data", and Dean & Pagano 2015, "Evaluating confidence
    interval methods for binomial proportions in clustered surveys", for Wilson's interval of an
    effective number. Deviation: it only widens that of the draws, which holds with few groups.
    """
    if items.is_binary and len(set(items.groups)) == len(items.ids) > 1:
        return bound_share(float(items.values.sum()), len(items.ids))
    cells = np.column_stack([items.values, np.ones(len(items.values))])
    (drawn,) = bound_clustered(items.groups, cells, divide_sums, seed=seed)
    if drawn is None or not items.is_binary:
        return drawn
    size = count_effective_items(sum_by_group(items.groups, cells))
    wilson = bound_share(items.value * size, size)
    return min(drawn[0], wilson[0]), max(drawn[1], wilson[1])


def count_effective_items(sums: Floats) -> float:
    """Return how many independent items would tell a share as well as these groups of items.

    At most as many as there are items. Where all items are alike the groups count: nothing is
    known about how far items of a group resemble each other.

    Args:
        sums: (G, 2) hits and items of each of G > 1 groups.

    Source: Kish 1965, "Survey sampling", sections 8.2 and 6.4 (the variance of a ratio).
    """
    hits, sizes = sums.T
    num_items = float(sizes.sum())
    share = float(hits.sum()) / num_items
    if share in (0.0, 1.0):
        return count_effective(sizes)
    num_groups = len(sums)
    residuals = hits - share * sizes
    variance = num_groups / (num_groups - 1) * float((residuals**2).sum()) / num_items**2
    independent = share * (1 - share)
    return independent / max(variance, independent / num_items)


def widen_certain(drawn: Interval, value: float, groups: tuple[str, ...]) -> Interval:
    """Return the interval of a share; where no draw differs from 0 or 1, Wilson's by groups."""
    if not (value in (0.0, 1.0) and drawn == (value, value)):
        return drawn
    size = count_effective(sum_by_group(groups, np.ones((len(groups), 1)))[:, 0])
    return widen_interval(bound_share(value * size, size), value)
