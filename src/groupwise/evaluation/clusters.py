"""Means and ratios of items in clusters drawn at random: variance, degrees of freedom, interval.

In shapes ``...`` is any number of data sets, n items and G clusters.

How often the intervals hold is in ``benchmarks/results/coverage.json``.

Source: Bell & McCaffrey 2002, "Bias reduction in standard errors for linear regression with
multi-stage samples", for a model with only an intercept.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from groupwise.evaluation.untyped import find_t_quantile

LEVEL = 0.95
CR2, CR3 = 1, 2
_ROUNDING = 1e-10
Floats = NDArray[np.float64]
Interval = tuple[float, float]


def sum_clusters(values: ArrayLike, clusters: Sequence[object]) -> tuple[Floats, Floats]:
    """Return sums (..., G) of values (..., n) by cluster and the clusters' sizes (G,), by name."""
    array = np.asarray(values, dtype=np.float64)
    _, codes = np.unique(np.asarray(clusters).astype(str), return_inverse=True)
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    sizes = np.diff(starts, append=len(codes)).astype(np.float64)
    return np.add.reduceat(array[..., order], starts, axis=-1), sizes


def find_mean(sums: Floats, sizes: Floats) -> Floats:
    """Return means (...) of items from sums (..., G) and sizes (..., G) of clusters."""
    return sums.sum(axis=-1) / sizes.sum(axis=-1)


def find_residuals(sums: Floats, sizes: Floats) -> Floats:
    """Return sums (..., G) less those of clusters whose items have the mean; rounding is 0."""
    residuals = sums - find_mean(sums, sizes)[..., None] * sizes
    return np.where(np.abs(residuals) < _ROUNDING, 0.0, residuals)


def find_variance(sums: Floats, sizes: Floats, adjustment: int = CR2) -> Floats:
    """Return the variance (...) of ``find_mean`` when clusters are drawn at random, >= 0.

    With h the cluster's share of the items and e its residual sum, the sum over clusters of
    e^2 / (1 - h)^a over n^2, where a is 1 (CR2) or 2 (CR3, close to the jackknife).

    Args:
        sums: (..., G) sums by cluster.
        sizes: (..., G) items by cluster; two or more clusters with items.
        adjustment: ``CR2`` or ``CR3``; 0 for no correction.

    Source: Bell & McCaffrey 2002, equations 5 and 6.
    """
    total = sizes.sum(axis=-1, keepdims=True)
    terms = find_residuals(sums, sizes) ** 2 / (1 - sizes / total) ** adjustment
    return terms.sum(axis=-1) / total[..., 0] ** 2


def find_cluster_df(sizes: Floats) -> Floats:
    """Return the degrees of freedom (...) of ``find_variance``: G - 1 where sizes (..., G) agree.

    tr(B)^2 / tr(B B) of the quadratic form B that the variance is, where items are independent.

    Source: Bell & McCaffrey 2002, equation 10, with the sum over pairs of clusters expanded.
    """
    share = sizes / sizes.sum(axis=-1, keepdims=True)
    cross = share * sizes / (1 - share)
    squared = cross.sum(axis=-1) ** 2 - (cross**2).sum(axis=-1)
    return sizes.sum(axis=-1) ** 2 / (squared + (sizes**2).sum(axis=-1))


def find_alike_df(sizes: Floats) -> Floats:
    """Return degrees of freedom (...) where items of a cluster are wholly alike, at least 1.

    ``find_cluster_df`` with the variance of a cluster's sum as its size squared, which is the
    worst case: fewer where sizes differ, G - 1 where they agree.

    Source: Bell & McCaffrey 2002, equation 10; Imbens & Kolesar 2016, "Robust standard errors in
    small samples: some practical advice", for a working correlation within clusters.
    """
    share = sizes / sizes.sum(axis=-1, keepdims=True)
    weight, own = 1 / (1 - share), share**2
    whole = own.sum(axis=-1, keepdims=True)
    diagonal = weight * (own * (1 - 2 * share + whole))
    left, right, both = ((weight * x).sum(axis=-1) for x in (own, own**2, own * share))
    pairs = 2 * left * right - 4 * whole[..., 0] * left * both + (whole[..., 0] * left) ** 2
    pairs = pairs + 2 * both**2 - ((weight * own * (2 * share - whole)) ** 2).sum(axis=-1)
    return np.maximum(diagonal.sum(axis=-1) ** 2 / (pairs + (diagonal**2).sum(axis=-1)), 1)


def find_sparse_df(sums: Floats, sizes: Floats) -> Floats:
    """Return degrees of freedom (...) of a variance that few clusters may carry, at least 1.

    2 (sum of squares)^2 / sum of (squares - their mean)^2 of the clusters' residual sums, at most
    ``find_cluster_df``: about 2 k where k of many clusters have all errors.

    Source: O'Neill 2014, "Some useful moment results in sampling problems" (the variance of a
    variance by the kurtosis, and the degrees of freedom that match it), for residual sums.
    """
    squares, used = find_residuals(sums, sizes) ** 2, sizes > 0
    mean = squares.sum(axis=-1) / used.sum(axis=-1)
    spread = ((squares - mean[..., None]) ** 2 * used).sum(axis=-1)
    total = squares.sum(axis=-1) ** 2
    sparse = np.where(spread > 0, 2 * total / np.where(spread > 0, spread, 1), np.inf)
    return np.maximum(np.minimum(sparse, find_cluster_df(sizes)), 1)


def count_effective(sizes: Floats) -> Floats:
    """Return how many clusters of one size are worth as much as clusters of sizes (..., G).

    Source: Kish 1965, "Survey sampling", section 8.2: (sum of sizes)^2 / sum of squared sizes.
    """
    return sizes.sum(axis=-1) ** 2 / (sizes**2).sum(axis=-1)


def count_carrying(sums: Floats, sizes: Floats) -> Floats:
    """Return how many clusters (...) carry the variance: (sum e^2)^2 / sum e^4 of residual sums e.

    1 = one has all of it; about a third of all clusters where residual sums are normal; 0 = no
    cluster differs from the mean.
    """
    squares = find_residuals(sums, sizes) ** 2
    fourth = (squares**2).sum(axis=-1)
    return np.where(fourth > 0, squares.sum(axis=-1) ** 2 / np.where(fourth > 0, fourth, 1), 0.0)


def find_quantile(df: ArrayLike, level: float = LEVEL) -> Floats:
    """Return the two-sided quantile of Student's t with ``df`` (...) degrees of freedom."""
    return np.asarray(find_t_quantile(df, (1 + level) / 2))


def clustered_ratio(
    numerators: ArrayLike, denominators: ArrayLike, clusters: Sequence[object]
) -> Interval | None:
    """Return the 95 % interval of a mean, a rate, a slice's accuracy, a precision, a recall, an F1.

    Where items count 0 or 1 and no cluster has two of the base it is Wilson's.

    Args:
        numerators: (n,) what counts, between 0 and the denominator: 1 where an answer is right.
        denominators: (n,) how far the item is in the base: for a precision 1 where the label was
            answered, for a recall where it is the truth, else 0.
        clusters: (n,) cluster of each item.

    Returns:
        Ends in [0, 1]; None where less than two clusters are in the base: nothing is known about
        others.
    """
    both = _snap(np.stack([np.asarray(numerators, float), np.asarray(denominators, float)]))
    (tops, bases), _ = sum_clusters(both, clusters)
    tops, bases = tops[bases > 0], bases[bases > 0]
    if len(bases) < 2:
        return None
    is_binary = bool(np.isin(both, (0, 1)).all())
    if is_binary and bases.max() == 1:
        total = bases.sum()
        ends = bound_wilson(tops.sum() / total, total, find_quantile(np.inf))
    else:
        ends = bound_ratio(tops, bases, is_binary=is_binary)
    return float(ends[0]), float(ends[1])


def _snap(values: Floats) -> Floats:
    """Return values of which those that differ from a whole number by rounding alone are whole."""
    whole = np.rint(values)
    return np.where(np.abs(values - whole) <= np.finfo(float).eps, whole, values)


def bound_ratio(tops: Floats, bases: Floats, *, is_binary: bool) -> tuple[Floats, Floats]:
    """Return low and high ends (...) of ratios, each interval with its ratio inside.

    Wilson's interval of as many independent items as have the variance found (CR3), with the
    quantile of Student's t. Where every item is alike the clusters count as the items.

    Args:
        tops: (..., G) sums of numerators by cluster.
        bases: (..., G) sums of denominators; 0 where a cluster has none.
        is_binary: whether items count 0 or 1; then there are at most as many effective items.

    Source: Korn & Graubard 1998, "Confidence intervals for proportions with small expected number
    of positive counts estimated from survey data", and Dean & Pagano 2015, "Evaluating confidence
    interval methods for binomial proportions in clustered surveys" (Wilson's interval of an
    effective number, with t). Deviation: CR3 and its degrees of freedom, not the design's.
    """
    ratio, variance = find_mean(tops, bases), find_variance(tops, bases, CR3)
    spread = ratio * (1 - ratio)
    alike = (spread <= 0) | (variance <= 0)
    size = np.where(alike, count_effective(bases), spread / np.where(alike, 1, variance))
    if is_binary:
        size = np.minimum(size, bases.sum(axis=-1))
    return bound_wilson(ratio, size, find_quantile(find_sparse_df(tops, bases)))


def bound_wilson(ratio: Floats, size: Floats, quantile: Floats) -> tuple[Floats, Floats]:
    """Return the ends (...) of Wilson's interval of a share of ``size`` items, within [0, 1].

    Source: Wilson 1927, "Probable inference, the law of succession, and statistical inference".
    """
    square = quantile**2
    middle = (ratio * size + square / 2) / (size + square)
    spread = quantile * np.sqrt(size * ratio * (1 - ratio) + square / 4) / (size + square)
    low, high = np.maximum(middle - spread, 0), np.minimum(middle + spread, 1)
    return np.minimum(low, ratio), np.maximum(high, ratio)
