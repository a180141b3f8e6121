"""Differences of methods over seeds: trainings and clusters are both drawn at random.

Where all trainings answered the same items, seeds and clusters are crossed (Owen 2007, "The
pigeonhole bootstrap", section 3); where each seed drew items of its own, a seed's mean carries its
clusters and seeds alone are compared. In shapes R is seeds, G clusters and ``...`` data sets.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Literal

import numpy as np
from scipy.optimize import brentq

from groupwise.core import EvaluationError
from groupwise.evaluation.predictions import Floats, Items
from groupwise.evaluation.statistics import (
    LEVEL,
    NO_SPREAD,
    count_carrying,
    find_cluster_df,
    find_mean,
    find_quantile,
    find_variance,
    subtract_items,
    sum_clusters,
)

MIN_SEEDS = 3
_LEAST_P, _FEW_SHARED = 1e-12, 0.05


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
