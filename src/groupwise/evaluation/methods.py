"""Differences of methods over seeds: trainings and clusters are both drawn at random.

Where all trainings answered the same items, seeds and clusters are crossed; where each seed drew
items of its own, a seed's mean carries its clusters and seeds alone are compared. In shapes R is
seeds, G clusters and ``...`` any number of data sets.

Source: Owen 2007, "The pigeonhole bootstrap", section 3 (the variance of a mean over two crossed
random factors).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Literal

import numpy as np
from scipy.optimize import brentq
from scipy.stats import nct

from groupwise.core import EvaluationError
from groupwise.evaluation.predictions import Items, subtract_items
from groupwise.evaluation.statistics import (
    LEVEL,
    POWER,
    Floats,
    count_carrying,
    find_cluster_df,
    find_mean,
    find_quantile,
    find_variance,
    sum_clusters,
)

MIN_SEEDS = 3
_MOST_SEEDS, _MOST_ITEMS, _LEAST_P = 1000, 10**7, 1e-12
_NO_SPREAD, _FEW_SHARED = 1e-12, 0.05
Design = Literal["crossed", "nested", "overlapping"]
Limit = Literal["", "few_seeds", "one_cluster", "overlapping", "no_spread"]


@dataclass(frozen=True, slots=True)
class Components:
    """What the variance of a difference of methods is made of; arrays of shape (...)."""

    estimate: Floats  # mean of b minus mean of a
    seed: Floats  # variance of the seeds' means over the number of seeds, both sides added
    cluster: Floats  # variance from drawing clusters, of the difference averaged over seeds
    interaction: Floats  # variance of seed x cluster and seed x item, in both of the above
    seed_df: Floats
    cluster_df: Floats
    num_seeds: int  # of the side that has fewer

    @property
    def seed_alone(self) -> Floats:
        """The part of ``seed`` that more items would not remove, >= 0."""
        return np.maximum(self.seed - self.interaction, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodDifference:
    """How method b differs from method a, over seeds and clusters like these.

    What belongs to the interval is None where ``limit`` says why there is none: less than 3 seeds a
    side, one cluster, items that overlap, or nothing that spreads.
    """

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
    design: Design  # ``crossed``: all answered the same items; ``nested``: each seed drew its own
    limit: Limit  # empty where there is an interval
    # Clusters that carry the variance, of crossed runs. Below 20 the interval of gains that whole
    # rare clusters have is too narrow.
    num_carrying: float | None = None
    seeds_needed: int | None = None  # a side, for 80 % power; None above 1000
    items_needed: int | None = None  # likewise with these seeds; None where no number of items does


def compare_methods(a: Sequence[Items], b: Sequence[Items], *, is_paired: bool) -> MethodDifference:
    """Compare method b with method a, each by the items of one run per seed.

    The interval is ``find_half_width``'s where runs answered the same items, else Student's t of
    seeds; with fewer than 3 seeds there are points only. Of the same items its coverage is at least
    93 % in every setting of ``benchmarks/coverage.py`` but those in which rare whole clusters carry
    all the gain. Runs with items of their own were not simulated. Where seeds of both sides belong
    together (``is_paired``), run r of b belongs to run r of a.

    Raises:
        EvaluationError: without runs, if paired sides have unlike numbers of seeds, or if paired
            runs answered other items.
    """
    if not a or not b or (is_paired and len(a) != len(b)):
        raise EvaluationError(
            "the sides do not belong together",
            got=f"{len(a)} and {len(b)} seeds",
            expected="one or more, as many on both sides where they are paired",
        )
    design = _find_design(a, b, is_paired=is_paired)
    num_clusters = min(len(set(one.clusters)) for one in (*a, *b))
    limit: Limit = "one_cluster" if num_clusters < 2 else ""
    if min(len(a), len(b)) < MIN_SEEDS:
        limit = "few_seeds"
    elif design == "overlapping":
        limit = "overlapping"
    parts = None if limit else _find_parts(a, b, design, is_paired=is_paired)
    half = 0.0 if parts is None else float(find_half_width(parts))
    if parts is not None and half < _NO_SPREAD:
        parts, limit = None, "no_spread"
    estimate = float(np.mean([one.value for one in b]) - np.mean([one.value for one in a]))
    found = MethodDifference(
        estimate=estimate,
        num_seeds_a=len(a),
        num_seeds_b=len(b),
        num_items=min(len(one.ids) for one in (*a, *b)),
        num_clusters=num_clusters,
        is_paired=is_paired,
        design=design,
        limit=limit,
    )
    if parts is None:
        return found
    squares = parts.seed_alone**2 / parts.seed_df + parts.cluster**2 / parts.cluster_df
    found = replace(
        found,
        low=max(-1.0, estimate - half),
        high=min(1.0, estimate + half),
        p_value=find_p(parts),
        df=float((parts.seed_alone + parts.cluster) ** 2 / squares),
        seed_share=_find_seed_share(parts, a, b, is_paired=is_paired),
        seeds_needed=count_seeds_needed(parts),
    )
    if design != "crossed":
        return found
    (one, sizes), (two, _) = _sum_runs(a), _sum_runs(b)
    carrying = float(count_carrying(two.mean(axis=0) - one.mean(axis=0), sizes))
    needed = count_items_needed(parts, len(a[0].ids))
    return replace(found, num_carrying=carrying, items_needed=needed)


def _find_design(a: Sequence[Items], b: Sequence[Items], *, is_paired: bool) -> Design:
    """Return how items relate to seeds; a few items that two seeds drew alike are chance."""
    if is_paired:
        for one, two in zip(a, b, strict=True):
            subtract_items(one, two)  # refuses other items
    runs = [*b] if is_paired else [*a, *b]
    if all((one.ids, one.clusters) == (runs[0].ids, runs[0].clusters) for one in (*a, *b)):
        return "crossed"
    sets = [set(one.ids) for one in runs]
    most = max(len(x & y) / min(len(x), len(y)) for x, y in combinations(sets, 2))
    return "nested" if most < _FEW_SHARED else "overlapping"


def _find_parts(
    a: Sequence[Items], b: Sequence[Items], design: Design, *, is_paired: bool
) -> Components:
    if design == "crossed":
        (one, sizes), (two, _) = (_sum_runs(side) for side in (a, b))
        return split_variance(one, two, sizes, is_paired=is_paired)
    means = [np.array([one.value for one in side]) for side in (a, b)]
    sides = [means[1] - means[0]] if is_paired else means
    seed, df = _join_sides(
        [(np.asarray(side.var(ddof=1) / len(side)), len(side) - 1) for side in sides]
    )
    none, estimate = np.zeros(()), np.asarray(means[1].mean() - means[0].mean())
    return Components(estimate, seed, none, none, df, np.ones(()), min(map(len, means)))


def _sum_runs(side: Sequence[Items]) -> tuple[Floats, Floats]:
    return sum_clusters(np.stack([one.values for one in side]), side[0].clusters)


def _find_seed_share(
    parts: Components, a: Sequence[Items], b: Sequence[Items], *, is_paired: bool
) -> float:
    """Return the trainings' share of the variance; of nested runs clusters have theirs in seeds."""
    if parts.cluster > 0:
        return float(parts.seed_alone / (parts.seed_alone + parts.cluster))
    sides = [[(one.values, one) for one in side] for side in (a, b)]
    if is_paired:
        sides = [[(subtract_items(one, two), two) for one, two in zip(a, b, strict=True)]]
    clusters = sum(
        float(find_variance(*sum_clusters(values, one.clusters))) / len(side) ** 2
        for side in sides
        for values, one in side
    )
    return max(0.0, 1 - clusters / float(parts.seed))


def split_variance(a: Floats, b: Floats, sizes: Floats, *, is_paired: bool) -> Components:
    """Return the components of mean b minus mean a, where seeds and clusters are crossed.

    ``a`` (..., R_a, G) and ``b`` (..., R_b, G) are sums by seed and cluster, ``sizes`` (G,) items.

    Source: Owen 2007, section 3; Welch 1938 for the degrees of freedom of unpaired seeds.
    """
    gains = b.mean(axis=-2) - a.mean(axis=-2)
    sides = [_split_side(side, sizes) for side in ([b - a] if is_paired else [a, b])]
    seed, seed_df = _join_sides([(variance, df) for variance, _, df in sides])
    return Components(
        estimate=find_mean(gains, sizes),
        seed=seed,
        cluster=find_variance(gains, sizes),
        interaction=np.sum([part for _, part, _ in sides], axis=0),
        seed_df=seed_df,
        cluster_df=np.broadcast_to(find_cluster_df(sizes), seed.shape),
        num_seeds=min(a.shape[-2], b.shape[-2]),
    )


def _split_side(sums: Floats, sizes: Floats) -> tuple[Floats, Floats, int]:
    """Return seed variance, interaction variance and degrees of freedom of sums (..., R, G)."""
    num_seeds, total = sums.shape[-2], sizes.sum()
    means = find_mean(sums, sizes)
    residuals = sums - means[..., None] * sizes
    residuals = residuals - residuals.mean(axis=-2, keepdims=True)
    terms = (residuals**2).sum(axis=-2) / (1 - sizes / total)
    interaction = terms.sum(axis=-1) / total**2 / (num_seeds * (num_seeds - 1))
    return means.var(axis=-1, ddof=1) / num_seeds, interaction, num_seeds - 1


def _join_sides(sides: Sequence[tuple[Floats, int]]) -> tuple[Floats, Floats]:
    """Return the sum of variances and Welch's degrees of freedom of it."""
    seed = np.sum([variance for variance, _ in sides], axis=0)
    squares = np.sum([variance**2 / df for variance, df in sides], axis=0)
    return seed, np.where(squares > 0, seed**2 / np.where(squares > 0, squares, 1), sides[0][1])


def find_half_width(parts: Components, level: float = LEVEL) -> Floats:
    """Return half the width (...) of the interval of a difference of methods.

    sqrt(t_seed^2 (V_seed - V_interaction)+ + t_cluster^2 V_cluster): each part keeps the quantile
    of its own degrees of freedom. It is never narrower than Student's t of the seeds' means: with
    three or four seeds the difference of the variances is often far too small by chance.

    Source: Howe 1974; Zou & Donner 2008, equation 3 (half-widths add in squares). In simulations
    with 3 to 10 seeds and 10 to 150 clusters its worst coverage is 93.5 %, that of Satterthwaite's
    single quantile 92 % (``benchmarks/coverage_methods.py``, ``coverage_seeds.py``).
    """
    seed = find_quantile(parts.seed_df, level) ** 2
    cluster = find_quantile(parts.cluster_df, level) ** 2
    both = seed * parts.seed_alone + cluster * parts.cluster
    return np.sqrt(np.maximum(both, seed * parts.seed))


def find_p(parts: Components) -> float:
    """Return the p at which the interval of level 1 - p just touches 0."""
    gap = abs(float(parts.estimate))

    def miss(log_p: float) -> float:
        return float(find_half_width(parts, 1 - math.exp(log_p))) - gap

    if miss(math.log(_LEAST_P)) < 0:
        return _LEAST_P
    root: Any = brentq(miss, math.log(_LEAST_P), 0.0) if gap else 0.0
    return math.exp(root)


def find_power(parts: Components, num_seeds: int, *, more_items: float = 1) -> float:
    """Return how likely a difference of this size is shown, in [0, 1], with the right sign.

    The estimate over its standard error is taken as noncentral t with Satterthwaite's degrees of
    freedom, against the quantile that ``find_half_width`` uses at the expected variances. There are
    ``num_seeds`` a side, 2 or more, and ``more_items`` times the items in clusters like these.

    Source: Cohen 1988, section 2.5 (power by the noncentral t); Satterthwaite 1946.
    """
    more_seeds = num_seeds / parts.num_seeds
    both = min(float(parts.interaction), float(parts.cluster))
    seed = float(parts.seed_alone) / more_seeds
    cluster = (float(parts.cluster) - both + both / more_seeds) / more_items
    seed_df = float(parts.seed_df) * (num_seeds - 1) / (parts.num_seeds - 1)
    cluster_df = max(1.0, float(parts.cluster_df) * more_items)
    quantiles = float(find_quantile(seed_df)), float(find_quantile(cluster_df))
    variance = seed + cluster
    df = variance**2 / (seed**2 / seed_df + cluster**2 / cluster_df)
    own = seed + float(parts.interaction) / more_seeds / more_items
    wide = max(quantiles[0] ** 2 * seed + quantiles[1] ** 2 * cluster, quantiles[0] ** 2 * own)
    limit = math.sqrt(wide / variance)
    shift = abs(float(parts.estimate)) / math.sqrt(variance)
    return float(nct.sf(limit, df, shift))


def count_seeds_needed(parts: Components) -> int | None:
    """Return the seeds a side that show this difference with 80 % power; None above 1000."""
    return _find_least(lambda num: find_power(parts, num), MIN_SEEDS, _MOST_SEEDS)


def count_items_needed(parts: Components, num_items: int) -> int | None:
    """Return the items that show this difference with these seeds; None where none do."""
    return _find_least(
        lambda num: find_power(parts, parts.num_seeds, more_items=num / num_items), 2, _MOST_ITEMS
    )


def _find_least(find: Callable[[int], float], least: int, most: int) -> int | None:
    """Return the least number whose power, which rises with it, is enough; None above ``most``."""
    if find(most) < POWER:
        return None
    low, high = least - 1, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if find(middle) >= POWER else (middle, high)
    return high
