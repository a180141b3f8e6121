"""Intervals of 95 % of means and of differences, also where an outcome is rare or never happens.

Draws of clusters of which hardly any has an error spread too little, and where none has one they do
not spread at all: no interval of shares is taken from draws alone.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from groupwise.evaluation.intervals import (
    LEVEL,
    NUM_RESAMPLES,
    Interval,
    bound_clustered,
    bound_share,
    count_effective,
    divide_sums,
    sum_by_cluster,
    widen_interval,
)
from groupwise.evaluation.items import Items
from groupwise.evaluation.untyped import normal

Floats = NDArray[np.float64]


def bound_mean(items: Items, *, seed: int) -> Interval | None:
    """Return the interval of the mean of a measure; None if a single cluster has all items.

    For shares of independent items it is Wilson's. Otherwise it is the one from drawing whole
    clusters, for shares widened to Wilson's of the effective number of items.

    Source: Korn & Graubard 1998, "Confidence intervals for proportions with small expected number
    of positive counts estimated from survey data", and Dean & Pagano 2015, "Evaluating confidence
    interval methods for binomial proportions in clustered surveys", for Wilson's interval of an
    effective number. Deviation: it only widens that of the draws, which holds with few clusters.
    """
    if items.is_binary and len(set(items.clusters)) == len(items.ids) > 1:
        return bound_share(float(items.values.sum()), len(items.ids))
    cells = np.column_stack([items.values, np.ones(len(items.values))])
    (drawn,) = bound_clustered(items.clusters, cells, divide_sums, seed=seed)
    if drawn is None or not items.is_binary:
        return drawn
    size = count_effective_items(items.clusters, items.values)
    return _join(drawn, bound_share(items.value * size, size))


def bound_difference(
    clusters: Sequence[str],
    gains: Floats,
    *,
    is_binary: bool,
    seed: int,
    num_resamples: int = NUM_RESAMPLES,
) -> Interval | None:
    """Return the interval of the mean gain of one policy over another; None with a single cluster.

    It is the one from drawing whole clusters; for items that are right or wrong it is widened to
    that of Bonett and Price for the effective number of items.

    Args:
        clusters: cluster of each item.
        gains: (N,) differences of values of the same item, in [-1, 1].
        is_binary: whether all values are 0 or 1.
        seed: seed of the draws.
        num_resamples: number of draws.

    Source: Bonett & Price 2012, "Adjusted Wald confidence interval for a difference of binomial
    proportions based on paired data". Deviations: an effective number of items, and it only widens
    that of the draws.
    """
    cells = np.column_stack([gains, np.ones(len(gains))])
    (drawn,) = bound_clustered(clusters, cells, divide_sums, seed=seed, num_resamples=num_resamples)
    if drawn is None or not is_binary:
        return drawn
    size = count_effective_items(clusters, gains)
    more = (float((gains > 0).mean()) * size + 1) / (size + 2)
    less = (float((gains < 0).mean()) * size + 1) / (size + 2)
    center = more - less
    half = float(normal.ppf((1 + LEVEL) / 2)) * ((more + less - center**2) / (size + 2)) ** 0.5
    return _join(drawn, (max(-1.0, center - half), min(1.0, center + half)))


def count_effective_items(clusters: Sequence[str], values: Floats) -> float:
    """Return how many independent items would tell a mean as well as these items of clusters.

    At most as many as there are items. Where all items are alike the clusters count: nothing is
    known about how far items of a cluster resemble each other.

    Args:
        clusters: cluster of each item; more than one.
        values: (N,) values.

    Source: Kish 1965, "Survey sampling" (the design effect, and the variance of a ratio mean).
    """
    sums, sizes = sum_by_cluster(clusters, np.column_stack([values, np.ones(len(values))])).T
    independent = float(values.var()) / len(values)
    if independent == 0:
        return count_effective(sizes)
    residuals = sums - float(values.mean()) * sizes
    num_clusters = len(sums)
    variance = num_clusters / (num_clusters - 1) * float((residuals**2).sum()) / len(values) ** 2
    return len(values) * independent / max(variance, independent)


def widen_certain(drawn: Interval, value: float, clusters: Sequence[str]) -> Interval:
    """Return the interval of a share; where no draw differs from 0 or 1, Wilson's by clusters."""
    if not (value in (0.0, 1.0) and drawn == (value, value)):
        return drawn
    size = count_effective(sum_by_cluster(clusters, np.ones((len(clusters), 1)))[:, 0])
    return widen_interval(bound_share(value * size, size), value)


def _join(one: Interval, other: Interval) -> Interval:
    return min(one[0], other[0]), max(one[1], other[1])
