"""Gains of one policy over another on the same items: interval and p-value, by clusters.

Both are the more careful of two: Student's t with CR3, and the studentised bootstrap of clusters,
which bends with skewed gains. ``benchmarks/results/coverage.json`` shows how often they hold. In
shapes ``...`` is any number of data sets.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from groupwise.evaluation.clusters import (
    CR3,
    LEVEL,
    Floats,
    Interval,
    count_carrying,
    count_effective,
    find_alike_df,
    find_cluster_df,
    find_mean,
    find_quantile,
    find_variance,
    sum_clusters,
)
from groupwise.evaluation.intervals import count_effective_items, draw_sums
from groupwise.evaluation.significance import score_mcnemar
from groupwise.evaluation.untyped import student_t

NUM_RESAMPLES = 9_999
FEW_CARRYING = 20
_NO_SPREAD = 1e-12


@dataclass(frozen=True, slots=True)
class Gain:
    """What the mean of gains may be.

    Attributes:
        low: lower end of the 95 % interval, in [-1, 1].
        high: upper end.
        p_value: two-sided, of no gain.
        num_carrying: how many clusters carry the variance; None where nothing spreads, and of
            items that are right or wrong and each its own cluster.
    """

    low: float
    high: float
    p_value: float
    num_carrying: float | None = None


def assess_gains(
    clusters: Sequence[str],
    gains: Floats,
    *,
    is_binary: bool,
    seed: int,
    num_resamples: int = NUM_RESAMPLES,
) -> Gain:
    """Return interval and p-value of the mean of paired gains.

    For items that are right or wrong the interval is widened to that of Bonett and Price; where
    each is its own cluster it is theirs alone, the test McNemar's, and zero in the interval where
    that shows no gain. With a single cluster the
    interval is [-1, 1] and p is 1: nothing is known about others.

    Args:
        clusters: cluster of each item.
        gains: (N,) differences of values of the same item, in [-1, 1].
        is_binary: whether all values are 0 or 1.
        seed: seed of the draws.
        num_resamples: number of draws; 40 k - 1 makes interval and p agree.
    """
    sums, sizes = sum_clusters(gains, clusters)
    if len(sizes) < 2:
        return Gain(-1.0, 1.0, 1.0)
    is_grouped = len(sizes) < len(gains)
    if is_binary and not is_grouped:
        p_value = score_mcnemar(int((gains < 0).sum()), int((gains > 0).sum()))
        low, high = bound_paired_shares(gains, len(gains))
        if p_value >= 1 - LEVEL:  # the test is the more careful one where few items differ
            low, high = min(low, 0.0), max(high, 0.0)
        return Gain(low, high, p_value)
    carrying = float(count_carrying(sums, sizes)) or None
    if carrying is None:
        low, high, p_value = bound_constant(float(gains.mean()), sizes)
    else:
        drawn = draw_sums(square_sums(sums, sizes), seed=seed, num_resamples=num_resamples)
        low, high, p_value = (float(part) for part in bound_gain(sums, sizes, drawn))
    if is_binary:
        ends = bound_paired_shares(gains, count_effective_items(clusters, gains))
        low, high = min(low, ends[0]), max(high, ends[1])
    return Gain(max(-1.0, low), min(1.0, high), p_value, carrying)


def bound_gain(sums: Floats, sizes: Floats, drawn: Floats) -> tuple[Floats, Floats, Floats]:
    """Return low, high and p (...) of the mean of gains.

    Args:
        sums: (..., G) gains summed by cluster; where not all clusters' gains are the same.
        sizes: (..., G) items by cluster.
        drawn: (..., draws, 5) sums of ``square_sums`` over bootstrap draws of the clusters.
    """
    mean, spread = find_mean(sums, sizes), np.sqrt(find_variance(sums, sizes, CR3))
    df = find_alike_df(sizes)
    half = find_quantile(df) * spread
    p_t = 2 * student_t.cdf(-np.abs(mean) / spread, df)
    low, high, p_drawn = bound_student(sums, sizes, drawn)
    return np.minimum(mean - half, low), np.maximum(mean + half, high), np.maximum(p_t, p_drawn)


def square_sums(sums: Floats, sizes: Floats) -> Floats:
    """Return (..., G, 5): sums, sizes and their products, of which a draw's t is made."""
    return np.stack([sums, sizes, sums**2, sums * sizes, sizes**2], axis=-1)


def bound_student(sums: Floats, sizes: Floats, drawn: Floats) -> tuple[Floats, Floats, Floats]:
    """Return low, high and p (...) of the studentised bootstrap of clusters, equal tails.

    Source: Davison & Hinkley 1997, "Bootstrap methods and their application", section 5.2.1
    (studentised limits) and equation 4.11 (p by counting); Cameron, Gelbach & Miller 2008,
    "Bootstrap-based improvements for inference with clustered errors" (pairs cluster bootstrap-t).
    Deviation: draws of clusters that are all alike have no t and are left out.
    """
    mean, spread = find_mean(sums, sizes), np.sqrt(find_variance(sums, sizes, 0))
    ordered = np.sort(_studentise(drawn, mean[..., None]), axis=-1)
    known, seen = np.isfinite(ordered).sum(axis=-1), (mean / spread)[..., None]
    more, less = (ordered >= seen).sum(axis=-1), (ordered <= seen).sum(axis=-1)
    p_value = np.minimum(1, 2 * (np.minimum(more, less) + 1) / (known + 1))
    tail = (1 - LEVEL) / 2 * (known + 1)
    rank = np.maximum(0, np.asarray(np.round(tail), dtype=np.int64) - 2)
    first, last = (
        np.take_along_axis(ordered, place[..., None], axis=-1)[..., 0]
        for place in (rank, np.maximum(known - 1 - rank, 0))
    )
    return mean - last * spread, mean - first * spread, p_value


def _studentise(drawn: Floats, mean: Floats) -> Floats:
    """Return the t (..., draws) of each draw's mean against that of the data; NaN without one."""
    tops, bases, squares, products, sizes = np.moveaxis(drawn, -1, 0)
    ratio = tops / bases
    spread = squares - 2 * ratio * products + ratio**2 * sizes
    with np.errstate(invalid="ignore"):
        return (tops - mean * bases) / np.sqrt(np.where(spread > _NO_SPREAD, spread, np.nan))


def bound_constant(mean: float, sizes: Floats) -> tuple[float, float, float]:
    """Return low, high and p where every cluster shows the same gain.

    Nothing is known of the spread: Wilson's end of 0 clusters that do otherwise, and the sign test
    of clusters, where both agree that there is a gain.
    """
    count, square = float(count_effective(sizes)), float(find_quantile(find_cluster_df(sizes))) ** 2
    half, p_value = square / (count + square), float(2 ** (1 - count))
    if abs(mean) <= half or p_value >= 1 - LEVEL:
        half, p_value = max(half, abs(mean)), 1.0
    return mean - half, mean + half, p_value


def bound_paired_shares(gains: Floats, size: float) -> Interval:
    """Return the interval of Bonett and Price for gains of -1, 0 and 1 worth ``size`` items.

    Source: Bonett & Price 2012, "Adjusted Wald confidence interval for a difference of binomial
    proportions based on paired data". Deviation: an effective number of items.
    """
    more = (float((gains > 0).mean()) * size + 1) / (size + 2)
    less = (float((gains < 0).mean()) * size + 1) / (size + 2)
    center = more - less
    half = float(find_quantile(np.inf)) * ((more + less - center**2) / (size + 2)) ** 0.5
    return max(-1.0, center - half), min(1.0, center + half)
