"""The variance of a difference of methods: its parts, interval, p-value and power.

In shapes R is seeds, G clusters and ``...`` any number of data sets.

Sources: Owen 2007, "The pigeonhole bootstrap", section 3 (the variance of a mean over two crossed
random factors); Howe 1974 and Zou & Donner 2008, "Construction of confidence limits about effect
measures: a general approach", equation 3 (half-widths add in squares); Welch 1938.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from groupwise.evaluation.clusters import (
    LEVEL,
    Floats,
    find_cluster_df,
    find_mean,
    find_quantile,
    find_variance,
)
from groupwise.evaluation.untyped import find_root, noncentral_t

MIN_SEEDS = 3
POWER = 0.8
_MOST_SEEDS = 1000
_MOST_ITEMS = 10**7
_LEAST_P = 1e-12


@dataclass(frozen=True, slots=True)
class Components:
    """What the variance of a difference of methods is made of; arrays of shape (...).

    Attributes:
        estimate: mean of b minus mean of a.
        seed: variance of the seeds' means over the number of seeds, both sides added.
        cluster: variance from drawing clusters, of the difference averaged over seeds.
        interaction: variance of seed x cluster and seed x item, which is in both of the above.
        seed_df: degrees of freedom of ``seed``.
        cluster_df: degrees of freedom of ``cluster``.
        num_seeds: of the side that has fewer.
    """

    estimate: Floats
    seed: Floats
    cluster: Floats
    interaction: Floats
    seed_df: Floats
    cluster_df: Floats
    num_seeds: int

    @property
    def seed_alone(self) -> Floats:
        """The part of ``seed`` that more items would not remove, >= 0."""
        return np.maximum(self.seed - self.interaction, 0)


def split_variance(a: Floats, b: Floats, sizes: Floats, *, is_paired: bool) -> Components:
    """Return the components of mean b minus mean a, where seeds and clusters are crossed.

    Args:
        a: (..., R_a, G) sums by seed and cluster.
        b: (..., R_b, G) sums; where paired, seed r of b belongs to seed r of a.
        sizes: (G,) items of the clusters.
        is_paired: whether seeds are drawn for both sides together.

    Source: Owen 2007, section 3; Welch 1938 for the degrees of freedom of unpaired seeds.
    """
    gains = b.mean(axis=-2) - a.mean(axis=-2)
    sides = [_split_side(side, sizes) for side in ([b - a] if is_paired else [a, b])]
    seed, seed_df = join_sides([(variance, df) for variance, _, df in sides])
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


def join_sides(sides: Sequence[tuple[Floats, int]]) -> tuple[Floats, Floats]:
    """Return the sum of variances and Welch's degrees of freedom of it."""
    seed = np.sum([variance for variance, _ in sides], axis=0)
    squares = np.sum([variance**2 / df for variance, df in sides], axis=0)
    return seed, np.where(squares > 0, seed**2 / np.where(squares > 0, squares, 1), sides[0][1])


def find_half_width(parts: Components, level: float = LEVEL) -> Floats:
    """Return half the width (...) of the interval of a difference of methods.

    sqrt(t_seed^2 (V_seed - V_interaction)+ + t_cluster^2 V_cluster): each part keeps the quantile
    of its own degrees of freedom, so that the interval is never narrower than that of items alone.
    It is never narrower than Student's t of the seeds' means either: with three or four seeds the
    difference of the variances is often far too small by chance.

    Source: Howe 1974; Zou & Donner 2008, equation 3. In simulations with 3 to 10 seeds and 10 to
    150 clusters its worst coverage is 93.5 %, that of Satterthwaite's single quantile 92 %; what
    the seeds' own interval adds is in ``benchmarks/coverage_seeds.py``.
    """
    seed = find_quantile(parts.seed_df, level) ** 2
    cluster = find_quantile(parts.cluster_df, level) ** 2
    both = seed * parts.seed_alone + cluster * parts.cluster
    return np.sqrt(np.maximum(both, seed * parts.seed))


def join_df(parts: Components) -> float:
    """Return Satterthwaite's degrees of freedom of the whole variance."""
    squares = parts.seed_alone**2 / parts.seed_df + parts.cluster**2 / parts.cluster_df
    return float((parts.seed_alone + parts.cluster) ** 2 / squares)


def find_p(parts: Components) -> float:
    """Return the p at which the interval of level 1 - p just touches 0."""
    gap = abs(float(parts.estimate))

    def miss(log_p: float) -> float:
        return float(find_half_width(parts, 1 - math.exp(log_p))) - gap

    if miss(math.log(_LEAST_P)) < 0:
        return _LEAST_P
    return math.exp(find_root(miss, math.log(_LEAST_P), 0.0)) if gap else 1.0


def find_power(parts: Components, num_seeds: int, *, more_items: float = 1) -> float:
    """Return how likely a difference of this size is shown, in [0, 1].

    The estimate over its standard error is taken as noncentral t with Satterthwaite's degrees of
    freedom, against the quantile that ``find_half_width`` uses at the expected variances. To be
    shown with the wrong sign does not count.

    Args:
        parts: measured.
        num_seeds: seeds a side, 2 or more.
        more_items: how many times the items there are, in clusters like these.

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
    return float(noncentral_t.sf(limit, df, shift))


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
