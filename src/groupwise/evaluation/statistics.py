"""Statistics: one interval, one test of paired gains, Holm's adjustment, methods over seeds.

Items of one cluster (a session) resemble each other, so clusters are what is drawn at random; of
methods the trainings are, too. In shapes ``...`` is any number of data sets, n items, G clusters
and R seeds; ``sums`` (..., G) are values summed by cluster and ``sizes`` (..., G) the clusters'
items. How often the intervals hold is in ``benchmarks/results/coverage.json``.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import ndtr, stdtr, stdtrit

from groupwise.core import EvaluationError
from groupwise.evaluation.predictions import Items

Floats = NDArray[np.float64]
LEVEL, SIGNIFICANCE, CR3 = 0.95, 0.05, 2
NUM_RESAMPLES, NUM_SHARE_RESAMPLES, EXACT_BELOW = 9_999, 2_000, 25
FEW_CARRYING = 20  # clusters; with fewer, false alarms may be 15 %, not 5 %
MIN_ITEMS, MIN_CLUSTERS, MAX_INVALID_RATE = 100, 20, 0.05
"""What reports warn of: fewer items or clusters, and a greater share of invalid answers."""
MIN_SEEDS = 3
NO_SPREAD, _ROUNDING, _BATCH_SIZE = 1e-12, 1e-10, 250_000
_LEAST_P, _FEW_SHARED = 1e-12, 0.05
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
    """Return means (...) of items."""
    return sums.sum(axis=-1) / sizes.sum(axis=-1)


def _square_residuals(sums: Floats, sizes: Floats) -> Floats:
    """Return squares (..., G) of sums less those of items that all have the mean."""
    residuals = sums - find_mean(sums, sizes)[..., None] * sizes
    return np.where(np.abs(residuals) < _ROUNDING, 0.0, residuals) ** 2


def find_variance(sums: Floats, sizes: Floats, adjustment: int = 1) -> Floats:
    """Return the variance (...) of ``find_mean`` when clusters are drawn at random, >= 0.

    ``adjustment`` is 1 (CR2), 2 (CR3, close to the jackknife) or 0 (none). Source: Bell & McCaffrey
    2002, "Bias reduction in standard errors for linear regression with multi-stage samples", 5, 6.
    """
    total = sizes.sum(axis=-1, keepdims=True)
    terms = _square_residuals(sums, sizes) / (1 - sizes / total) ** adjustment
    return terms.sum(axis=-1) / total[..., 0] ** 2


def find_cluster_df(sizes: Floats) -> Floats:
    """Return degrees of freedom (...) where items are independent (Bell & McCaffrey, eq. 10)."""
    share = sizes / sizes.sum(axis=-1, keepdims=True)
    cross = share * sizes / (1 - share)
    squared = cross.sum(axis=-1) ** 2 - (cross**2).sum(axis=-1)
    return sizes.sum(axis=-1) ** 2 / (squared + (sizes**2).sum(axis=-1))


def find_alike_df(sizes: Floats) -> Floats:
    """Return degrees of freedom (...) >= 1 where clusters are alike (Imbens & Kolesar 2016)."""
    share = sizes / sizes.sum(axis=-1, keepdims=True)
    weight, own = 1 / (1 - share), share**2
    whole = own.sum(axis=-1, keepdims=True)
    diagonal = weight * (own * (1 - 2 * share + whole))
    left, right, both = ((weight * x).sum(axis=-1) for x in (own, own**2, own * share))
    pairs = 2 * left * right - 4 * whole[..., 0] * left * both + (whole[..., 0] * left) ** 2
    pairs = pairs + 2 * both**2 - ((weight * own * (2 * share - whole)) ** 2).sum(axis=-1)
    return np.maximum(diagonal.sum(axis=-1) ** 2 / (pairs + (diagonal**2).sum(axis=-1)), 1)


def find_sparse_df(sums: Floats, sizes: Floats) -> Floats:
    """Return degrees of freedom (...) >= 1 of a variance that few clusters carry (O'Neill 2014).

    About 2 k where k of many clusters have all errors, and at most ``find_cluster_df``.
    """
    squares, used = _square_residuals(sums, sizes), sizes > 0
    mean = squares.sum(axis=-1) / used.sum(axis=-1)
    spread = ((squares - mean[..., None]) ** 2 * used).sum(axis=-1)
    total = squares.sum(axis=-1) ** 2
    sparse = np.where(spread > 0, 2 * total / np.where(spread > 0, spread, 1), np.inf)
    return np.maximum(np.minimum(sparse, find_cluster_df(sizes)), 1)


def count_effective(sizes: Floats) -> Floats:
    """Return how many clusters of one size are worth these (Kish 1965, "Survey sampling", 8.2)."""
    return sizes.sum(axis=-1) ** 2 / (sizes**2).sum(axis=-1)


def count_carrying(sums: Floats, sizes: Floats) -> Floats:
    """Return how many clusters carry the variance, a third where residuals are normal; or 0."""
    with np.errstate(invalid="ignore"):
        return np.nan_to_num(count_effective(_square_residuals(sums, sizes)))


def find_quantile(df: ArrayLike, level: float = LEVEL) -> Floats:
    """Return the two-sided quantile of Student's t with ``df`` (...) degrees of freedom."""
    return np.asarray(stdtrit(df, (1 + level) / 2))


def clustered_ratio(
    numerators: ArrayLike, denominators: ArrayLike, clusters: Sequence[object]
) -> Interval | None:
    """Return the 95 % interval, in [0, 1], of a mean, a rate, a precision, a recall or an F1.

    A numerator is between 0 and its denominator, which tells how far the item is in the base (for a
    recall 1 where the label is the truth). Wilson's where items count 0 or 1 and no cluster has two
    of the base; None where less than two clusters are in the base.
    """
    both = np.stack([np.asarray(numerators, float), np.asarray(denominators, float)])
    whole = np.rint(both)
    both = np.where(np.abs(both - whole) <= np.finfo(float).eps, whole, both)
    (tops, bases), _ = sum_clusters(both, clusters)
    tops, bases = tops[bases > 0], bases[bases > 0]
    if len(bases) < 2:
        return None
    is_binary = bool(np.isin(both, (0, 1)).all())
    if is_binary and bases.max() == 1:
        return bound_share(tops.sum(), bases.sum())
    low, high = bound_ratio(tops, bases, is_binary=is_binary)
    return float(low), float(high)


def bound_ratio(tops: Floats, bases: Floats, *, is_binary: bool) -> tuple[Floats, Floats]:
    """Return low and high ends (...) of ratios of sums (..., G), each with its ratio inside.

    Wilson's interval of as many independent items as have the variance found, with Student's
    quantile. Where every item is alike the clusters count as the items. Items that count 0 or 1
    (``is_binary``) are at most as many effective ones. Source: Korn & Graubard 1998 and Dean &
    Pagano 2015; deviation: CR3 and its degrees of freedom, not the design's.
    """
    ratio, variance = find_mean(tops, bases), find_variance(tops, bases, CR3)
    spread = ratio * (1 - ratio)
    alike = (spread <= 0) | (variance <= 0)
    size = np.where(alike, count_effective(bases), spread / np.where(alike, 1, variance))
    if is_binary:
        size = np.minimum(size, bases.sum(axis=-1))
    return _bound_wilson(ratio, size, find_quantile(find_sparse_df(tops, bases)))


def _bound_wilson(ratio: Any, size: Any, quantile: Floats) -> tuple[Floats, Floats]:
    square = quantile**2
    middle = (ratio * size + square / 2) / (size + square)
    spread = quantile * np.sqrt(size * ratio * (1 - ratio) + square / 4) / (size + square)
    low, high = np.maximum(middle - spread, 0), np.minimum(middle + spread, 1)
    return np.minimum(low, ratio), np.maximum(high, ratio)


def bound_share(num_hits: float, num_items: float) -> Interval:
    """Return Wilson's 95 % interval of ``num_hits / num_items`` of independent items, in [0, 1]."""
    low, high = _bound_wilson(num_hits / num_items, num_items, find_quantile(np.inf))
    return float(low), float(high)


def widen_balanced(
    drawn: Interval,
    value: float,
    clusters: Sequence[str],
    recalls: Sequence[tuple[float, Interval]] = (),
) -> Interval:
    """Return the interval of balanced accuracy, whose draws may spread too little or not at all.

    Where no draw differs from 0 or 1 it is that of so many items. With a recall of 0 or 1, as of a
    constant answer, it is no narrower than what the intervals of the ``recalls`` say, whose
    distances add in squares (Zou & Donner 2008, equation 3).
    """
    if value in (0.0, 1.0) and drawn == (value, value):
        ones = np.ones(len(clusters))
        drawn = clustered_ratio(ones * value, ones, clusters) or drawn
    if all(0.0 < recall < 1.0 for recall, _ in recalls):
        return drawn
    gaps = zip(*((recall - low, high - recall) for recall, (low, high) in recalls), strict=True)
    below, above = (math.sqrt(np.square(side).sum()) / len(recalls) for side in gaps)
    return max(0.0, min(drawn[0], value - below)), min(1.0, max(drawn[1], value + above))


def bound_clustered(
    clusters: Sequence[str],
    cells: Floats,
    statistic: Callable[[Floats], Floats],
    *,
    seed: int,
    num_resamples: int = NUM_SHARE_RESAMPLES,
) -> list[Interval | None]:
    """Return bootstrap intervals (95 %) of K statistics (K, ...) of sums, drawing whole clusters.

    The sums (..., C) are of ``cells`` (n, C). Draws in which a statistic is undefined (NaN) are
    left out: None where all are, or with one cluster. Source: Field & Welsh 2007.
    """
    by_cell, sizes = sum_clusters(cells.T, clusters)
    sums = np.ascontiguousarray(by_cell.T)
    if len(sums) < 2:
        return [None] * len(statistic(sums.sum(axis=0)))
    tail = find_tail(float(count_effective(sizes)))
    with np.errstate(invalid="ignore", divide="ignore"):
        draws = statistic(draw_sums(sums, seed=seed, num_resamples=num_resamples))
    known = [row[np.isfinite(row)] for row in draws]
    ends = [np.quantile(row, [tail, 1 - tail]).tolist() if len(row) else None for row in known]
    return [None if pair is None else (pair[0], pair[1]) for pair in ends]


def find_tail(num_clusters: float) -> float:
    """Return the share of draws to leave out at each end, below 2.5 % (Hesterberg 2015, 5.3)."""
    # Draws of G clusters spread too little by sqrt((G - 1) / G), and how much is estimated.
    if num_clusters <= 1:
        return 0.0
    quantile = stdtrit(num_clusters - 1, (1 - LEVEL) / 2)
    return float(ndtr(np.sqrt(num_clusters / (num_clusters - 1)) * quantile))


def draw_sums(sums: Floats, *, seed: int, num_resamples: int) -> Floats:
    """Return sums (num_resamples, C) of bootstrap draws of G of the rows of ``sums`` (G, C)."""
    random = np.random.default_rng(seed)
    rows, counts = np.unique(sums, axis=0, return_counts=True)
    size = len(sums)
    if len(rows) * 8 <= size:  # one count is drawn for all equal rows
        drawn = random.multinomial(size, counts / size, size=num_resamples)
        return drawn.astype(np.float64) @ rows
    found: list[Floats] = []
    batch = max(1, _BATCH_SIZE // size)  # small enough for the processor's cache
    for start in range(0, num_resamples, batch):
        num_draws = min(batch, num_resamples - start)
        index = random.integers(size, size=(num_draws, size))
        index += np.arange(num_draws)[:, None] * size
        taken = np.bincount(index.ravel(), minlength=num_draws * size)
        found.append(taken.reshape(num_draws, size).astype(np.float64) @ sums)
    return np.concatenate(found)


def count_effective_items(clusters: Sequence[str], values: Floats) -> float:
    """Return how many independent items would tell a mean as well as these, at most as many.

    That is by how many times clusters raise the variance of a mean (Kish 1965; Liang & Zeger 1986).
    """
    sums, sizes = sum_clusters(values, clusters)
    num_items, num_clusters = len(values), len(sums)
    # How far items of a cluster resemble is not known where all do: clusters count.
    if num_clusters < 2 or float(np.ptp(values)) < NO_SPREAD:
        return float(count_effective(sizes))
    residuals = float(((sums - values.mean() * sizes) ** 2).sum())
    correction = num_clusters / (num_clusters - 1) * (num_items - 1) / num_items
    effect = correction * residuals / (num_items * float(values.var()))
    return num_items / max(1.0, effect * num_items / (num_items - 1))


def score_mcnemar(num_a_only: int, num_b_only: int) -> float:
    """Return McNemar's p-value of independent items: exact below 25 discordant, else corrected."""
    from statsmodels.stats.contingency_tables import mcnemar

    is_exact = num_a_only + num_b_only < EXACT_BELOW
    found: Any = mcnemar([[0, num_a_only], [num_b_only, 0]], exact=is_exact)
    return float(found.pvalue)


def adjust_holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted for their number, in the order given (Holm 1979)."""
    # statsmodels gives the same, and takes a fifth of a second to collect garbage every time.
    order = np.argsort(p_values, kind="stable")
    raw = np.asarray(p_values)[order] * np.arange(len(order), 0, -1)
    adjusted = np.empty(len(order))
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(raw))
    return adjusted.tolist()


@dataclass(frozen=True, slots=True)
class Gain:
    """What the mean of paired gains may be: ends of the 95 % interval in [-1, 1], two-sided p."""

    low: float
    high: float
    p_value: float
    # Clusters that carry the variance: None where nothing spreads or McNemar's test is used.
    num_carrying: float | None = None


def assess_gains(
    clusters: Sequence[str],
    gains: Floats,
    *,
    is_binary: bool,
    seed: int,
    num_resamples: int = NUM_RESAMPLES,
) -> Gain:
    """Return interval and p-value of the mean of gains (n,) in [-1, 1] of one policy over another.

    Both are the more careful of two: Student's t with CR3, and the studentised bootstrap of
    clusters, which bends with skewed gains. For items that are right or wrong (``is_binary``) the
    interval is widened to that of Bonett and Price; where each is its own cluster it is theirs
    alone and the test McNemar's. Where every cluster gains the same the spread is not known:
    Wilson's end of 0 clusters that do otherwise and the sign test, where both show a gain. A single
    cluster says nothing about others: the interval is [-1, 1] and p is 1.
    """
    sums, sizes = sum_clusters(gains, clusters)
    if len(sizes) < 2:
        return Gain(-1.0, 1.0, 1.0)
    if is_binary and len(sizes) == len(gains):
        p_value = score_mcnemar(int((gains < 0).sum()), int((gains > 0).sum()))
        low, high = _bound_paired_shares(gains, len(gains))
        if p_value >= 1 - LEVEL:  # the test is the more careful one where few items differ
            low, high = min(low, 0.0), max(high, 0.0)
        return Gain(low, high, p_value)
    carrying = float(count_carrying(sums, sizes)) or None
    if carrying is None:
        mean, count = float(gains.mean()), float(count_effective(sizes))
        square = float(find_quantile(find_cluster_df(sizes))) ** 2
        half, p_value = square / (count + square), float(2 ** (1 - count))
        if abs(mean) <= half or p_value >= 1 - LEVEL:
            half, p_value = max(half, abs(mean)), 1.0
        low, high = mean - half, mean + half
    else:
        drawn = draw_sums(square_sums(sums, sizes), seed=seed, num_resamples=num_resamples)
        low, high, p_value = (float(part) for part in bound_gain(sums, sizes, drawn))
    if is_binary:
        ends = _bound_paired_shares(gains, count_effective_items(clusters, gains))
        low, high = min(low, ends[0]), max(high, ends[1])
    return Gain(max(-1.0, low), min(1.0, high), p_value, carrying)


def square_sums(sums: Floats, sizes: Floats) -> Floats:
    """Return (..., G, 5): sums, sizes and their products, of which a draw's t is made."""
    return np.stack([sums, sizes, sums**2, sums * sizes, sizes**2], axis=-1)


def bound_gain(sums: Floats, sizes: Floats, drawn: Floats) -> tuple[Floats, Floats, Floats]:
    """Return low, high and p (...) of the mean of gains, where not all clusters gain the same.

    Studentised bootstrap: ``drawn`` (..., draws, 5) are sums of ``square_sums`` over draws.
    Source: Davison & Hinkley 1997, "Bootstrap methods and their application", section 5.2.1 and
    equation 4.11. Deviation: draws of clusters that are all alike have no t and are left out.
    """
    mean, spread = find_mean(sums, sizes), np.sqrt(find_variance(sums, sizes, 0))
    tops, bases, squares, products, square_sizes = np.moveaxis(drawn, -1, 0)
    ratio = tops / bases
    spreads = squares - 2 * ratio * products + ratio**2 * square_sizes
    with np.errstate(invalid="ignore"):
        root = np.sqrt(np.where(spreads > NO_SPREAD, spreads, np.nan))
        ordered = np.sort((tops - mean[..., None] * bases) / root, axis=-1)
    known, seen = np.isfinite(ordered).sum(axis=-1), (mean / spread)[..., None]
    more, less = (ordered >= seen).sum(axis=-1), (ordered <= seen).sum(axis=-1)
    p_drawn = np.minimum(1, 2 * (np.minimum(more, less) + 1) / (known + 1))
    tail = (1 - LEVEL) / 2 * (known + 1)
    rank = np.maximum(0, np.asarray(np.round(tail), dtype=np.int64) - 2)
    first, last = (
        np.take_along_axis(ordered, place[..., None], axis=-1)[..., 0]
        for place in (rank, np.maximum(known - 1 - rank, 0))
    )
    robust = np.sqrt(find_variance(sums, sizes, CR3))
    df = find_alike_df(sizes)
    half = find_quantile(df) * robust
    low, high = np.minimum(mean - half, mean - last * spread), mean - first * spread
    p_value = np.maximum(2 * stdtr(df, -np.abs(mean) / robust), p_drawn)
    return low, np.maximum(mean + half, high), p_value


def _bound_paired_shares(gains: Floats, size: float) -> Interval:
    """Return the interval of gains of -1, 0 and 1 worth ``size`` items (Bonett & Price 2012)."""
    more = (float((gains > 0).mean()) * size + 1) / (size + 2)
    less = (float((gains < 0).mean()) * size + 1) / (size + 2)
    center = more - less
    half = float(find_quantile(np.inf)) * ((more + less - center**2) / (size + 2)) ** 0.5
    return max(-1.0, center - half), min(1.0, center + half)


@dataclass(frozen=True, slots=True)
class Components:
    """What the variance of a difference of methods is made of; arrays of shape (...)."""

    estimate: Floats  # mean of b minus mean of a
    seed: Floats  # variance of the seeds' means over the number of seeds, both sides added
    cluster: Floats  # variance from drawing clusters, of the difference averaged over seeds
    interaction: Floats  # variance of seed x cluster and seed x item, in both of the above
    seed_df: Floats
    cluster_df: Floats

    @property
    def seed_alone(self) -> Floats:
        """The part of ``seed`` that more items would not remove, >= 0."""
        return np.maximum(self.seed - self.interaction, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodDifference:
    """How method b differs from method a; of the interval all is None where ``limit`` says why."""

    estimate: float  # mean over seeds and items of b minus that of a, in [-1, 1]
    low: float | None = None  # ends of the 95 % interval
    high: float | None = None
    p_value: float | None = None  # two-sided, below 5 % just where the interval leaves 0 out
    df: float | None = None  # degrees of freedom by Satterthwaite: how sure the width is
    seed_share: float | None = None  # of the variance, that of trainings; the rest is clusters'
    num_seeds_a: int
    num_seeds_b: int
    num_items: int  # of the run that has fewest, as the clusters
    num_clusters: int
    is_paired: bool  # the seeds of both sides belong together
    design: Literal["crossed", "nested", "overlapping"]  # same items, each seed's own, or neither
    limit: Literal["", "few_seeds", "one_cluster", "overlapping", "no_spread"] = ""
    num_carrying: float | None = None  # clusters that carry the variance, of crossed runs


def subtract_items(a: Items, b: Items) -> Floats:
    """Return ``b`` minus ``a`` by item, (N,) in [-1, 1], rounding aside; refuse unlike items."""
    if (a.measure, a.split) != (b.measure, b.split):
        raise EvaluationError(
            "unlike things cannot be compared",
            got=f"{a.measure} on {a.split} and {b.measure} on {b.split}",
            expected="one measure on one split",
        )
    both_labels = bool(a.labels and b.labels)
    if (a.ids, a.clusters) != (b.ids, b.clusters) or (both_labels and a.labels != b.labels):
        raise EvaluationError(
            f"{a.policy} and {b.policy} did not answer the same items of {a.split}",
            got=f"{len(a.ids)} and {len(b.ids)} items, {len({*a.ids} & {*b.ids})} in common",
            expected="the same ids, labels and clusters",
            fix="predict with both on the same items first",
        )
    gains = b.values - a.values
    return np.where(np.abs(gains) < NO_SPREAD, 0.0, gains)


def compare_methods(a: Sequence[Items], b: Sequence[Items], *, is_paired: bool) -> MethodDifference:
    """Compare method b with method a, each by the items of one run per seed.

    The interval is ``find_half_width``'s where runs answered the same items, else Student's t of
    seeds. Of the same items its coverage is at least 93 % in every setting of
    ``benchmarks/coverage.py`` but those in which rare whole clusters carry all the gain. Where runs
    belong together in turn (``is_paired``), unlike numbers or items are an EvaluationError.
    """
    if not a or not b or (is_paired and len(a) != len(b)):
        raise EvaluationError(
            "the sides do not belong together",
            got=f"{len(a)} and {len(b)} seeds",
            expected="one or more, as many on both sides where they are paired",
        )
    runs, means = [*a, *b], [np.array([run.value for run in side]) for side in (a, b)]
    own = [(run.values, len(side), run.clusters) for side in (a, b) for run in side]
    if is_paired:  # other items are refused
        own = [(subtract_items(x, y), len(b), y.clusters) for x, y in zip(a, b, strict=True)]
    design = "crossed"
    if any((run.ids, run.clusters) != (a[0].ids, a[0].clusters) for run in runs):
        sets = [set(run.ids) for run in (b if is_paired else runs)]
        most = max(len(x & y) / min(len(x), len(y)) for x, y in combinations(sets, 2))
        design = "nested" if most < _FEW_SHARED else "overlapping"  # a few alike are chance
    found = MethodDifference(
        estimate=float(means[1].mean() - means[0].mean()),
        num_seeds_a=len(a),
        num_seeds_b=len(b),
        num_items=min(len(run.ids) for run in runs),
        num_clusters=min(len(set(run.clusters)) for run in runs),
        is_paired=is_paired,
        design=design,
    )
    if min(len(a), len(b)) < MIN_SEEDS:
        return replace(found, limit="few_seeds")
    if design == "overlapping":
        return replace(found, limit="overlapping")
    if found.num_clusters < 2:
        return replace(found, limit="one_cluster")
    carrying: float | None = None
    if design == "crossed":
        (one, sizes), (two, _) = (
            sum_clusters(np.stack([run.values for run in side]), a[0].clusters) for side in (a, b)
        )
        parts = split_variance(one, two, sizes, is_paired=is_paired)
        carrying = float(count_carrying(two.mean(axis=0) - one.mean(axis=0), sizes))
    else:
        sides = [means[1] - means[0]] if is_paired else means
        seed, df = _join_sides([(side.var(ddof=1) / len(side), len(side) - 1) for side in sides])
        none = np.zeros(())
        parts = Components(np.asarray(found.estimate), seed, none, none, df, none + 1)
    half, alone, cluster = float(find_half_width(parts)), parts.seed_alone, parts.cluster
    if half < NO_SPREAD:
        return replace(found, limit="no_spread")
    if cluster > 0:
        share = float(alone / (alone + cluster))
    else:  # clusters of nested runs have their share in the seeds'
        variances = [find_variance(*sum_clusters(x, names)) / num**2 for x, num, names in own]
        share = max(0.0, 1 - sum(map(float, variances)) / float(parts.seed))
    squares = alone**2 / parts.seed_df + cluster**2 / parts.cluster_df
    return replace(
        found,
        low=max(-1.0, found.estimate - half),
        high=min(1.0, found.estimate + half),
        p_value=find_p(parts),
        df=float((alone + cluster) ** 2 / squares),
        seed_share=share,
        num_carrying=carrying,
    )


def split_variance(a: Floats, b: Floats, sizes: Floats, *, is_paired: bool) -> Components:
    """Return the components of mean b minus mean a, where seeds and clusters are crossed.

    ``a`` (..., R_a, G) and ``b`` (..., R_b, G) are sums by seed and cluster, ``sizes`` (G,) items.
    """
    gains, total = b.mean(axis=-2) - a.mean(axis=-2), sizes.sum()
    sides: list[tuple[Floats, int]] = []
    interactions: list[Floats] = []
    for sums in [b - a] if is_paired else [a, b]:
        num_seeds, means = sums.shape[-2], find_mean(sums, sizes)
        residuals = sums - means[..., None] * sizes
        residuals = residuals - residuals.mean(axis=-2, keepdims=True)
        terms = (residuals**2).sum(axis=-2) / (1 - sizes / total)
        interactions.append(terms.sum(axis=-1) / total**2 / (num_seeds * (num_seeds - 1)))
        sides.append((means.var(axis=-1, ddof=1) / num_seeds, num_seeds - 1))
    seed, seed_df = _join_sides(sides)
    return Components(
        estimate=find_mean(gains, sizes),
        seed=seed,
        cluster=find_variance(gains, sizes),
        interaction=np.sum(interactions, axis=0),
        seed_df=seed_df,
        cluster_df=np.broadcast_to(find_cluster_df(sizes), seed.shape),
    )


def _join_sides(sides: Sequence[tuple[Floats, int]]) -> tuple[Floats, Floats]:
    """Return the sum of variances and Welch's (1938) degrees of freedom of it."""
    seed = np.sum([variance for variance, _ in sides], axis=0)
    squares = np.sum([variance**2 / df for variance, df in sides], axis=0)
    return seed, np.where(squares > 0, seed**2 / np.where(squares > 0, squares, 1), sides[0][1])


def find_half_width(parts: Components, level: float = LEVEL) -> Floats:
    """Return half the width (...) of the interval of a difference of methods.

    sqrt(t_seed^2 (V_seed - V_interaction)+ + t_cluster^2 V_cluster): half-widths add in squares,
    each with its own degrees of freedom (Howe 1974; Zou & Donner 2008, equation 3). Never narrower
    than Student's t of the seeds' means: with three or four seeds the difference of the variances
    is often far too small by chance (``benchmarks/coverage_seeds.py``).
    """
    seed = find_quantile(parts.seed_df, level) ** 2
    both = seed * parts.seed_alone + find_quantile(parts.cluster_df, level) ** 2 * parts.cluster
    return np.sqrt(np.maximum(both, seed * parts.seed))


def find_p(parts: Components) -> float:
    """Return the p at which the interval of level 1 - p just touches 0, at least 1e-12."""
    gap = abs(float(parts.estimate))

    def miss(log_p: float) -> float:
        return float(find_half_width(parts, 1 - math.exp(log_p))) - gap

    if miss(math.log(_LEAST_P)) < 0:
        return _LEAST_P
    root: Any = brentq(miss, math.log(_LEAST_P), 0.0) if gap else 0.0
    return math.exp(root)
