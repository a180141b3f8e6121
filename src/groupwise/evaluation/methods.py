"""Differences of methods: seeds and clusters are both drawn at random.

A method is measured by trainings with several seeds. Where all of them answered the same items,
seeds and clusters are crossed; where each seed drew items of its own, a seed's mean carries its
clusters and seeds alone are compared.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np

from groupwise.core import EvaluationError
from groupwise.evaluation.clusters import Floats, count_carrying, find_variance, sum_clusters
from groupwise.evaluation.items import Items, subtract_items
from groupwise.evaluation.method_variance import (
    MIN_SEEDS,
    Components,
    count_items_needed,
    count_seeds_needed,
    find_half_width,
    find_p,
    join_df,
    join_sides,
    split_variance,
)

_NO_SPREAD = 1e-12
_FEW_SHARED = 0.05
Design = Literal["crossed", "nested", "overlapping"]
Limit = Literal["", "few_seeds", "one_cluster", "overlapping", "no_spread"]


@dataclass(frozen=True, slots=True)
class MethodDifference:
    """How method b differs from method a, over seeds and clusters like these.

    Attributes:
        estimate: mean over seeds and items of b minus that of a, in [-1, 1].
        low: lower end of the 95 % interval; None where ``limit`` says why there is none.
        high: upper end.
        p_value: two-sided, below 5 % just where the interval leaves 0 out; None without one.
        df: degrees of freedom by Satterthwaite, to tell how sure the width is.
        seed_share: share of the estimate's variance that trainings have; the rest is clusters'.
            None where nothing is known of it.
        num_seeds_a: trainings of a.
        num_seeds_b: trainings of b.
        num_items: items of the run that has fewest.
        num_clusters: clusters of the run that has fewest.
        is_paired: whether the seeds of both sides belong together.
        design: ``crossed``: every run answered the same items; ``nested``: each seed drew its own;
            ``overlapping``: neither.
        limit: empty, or why there are points only: ``few_seeds`` (less than 3 a side),
            ``one_cluster``, ``overlapping`` items, or ``no_spread``.
        num_carrying: how many clusters carry the variance; None unless ``design`` is crossed. Below
            20 the interval of gains that whole rare clusters have is too narrow.
        seeds_needed: seeds a side that show a difference of this size with 80 % power; None above
            1000, and without an interval.
        items_needed: likewise items with these seeds; None where no number of items does.
    """

    estimate: float
    low: float | None
    high: float | None
    p_value: float | None
    df: float | None
    seed_share: float | None
    num_seeds_a: int
    num_seeds_b: int
    num_items: int
    num_clusters: int
    is_paired: bool
    design: Design
    limit: Limit
    num_carrying: float | None = None
    seeds_needed: int | None = None
    items_needed: int | None = None


def compare_methods(a: Sequence[Items], b: Sequence[Items], *, is_paired: bool) -> MethodDifference:
    """Compare method b with method a, each measured by the items of one run per seed.

    The interval is ``find_half_width``'s where runs answered the same items, else Student's t of
    seeds; with fewer than 3 seeds there are points only. Of the same items its coverage is at least
    93 % in every setting of ``benchmarks/coverage.py`` but those in which rare whole clusters carry
    all the gain. Runs with items of their own were not simulated.

    Args:
        a: by seed.
        b: by seed; where paired, run r of b belongs to run r of a.
        is_paired: whether the seeds of both sides belong together.

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
    limit = _find_limit(min(len(a), len(b)), num_clusters, design)
    parts = None if limit else _find_parts(a, b, design, is_paired=is_paired)
    half = 0.0 if parts is None else float(find_half_width(parts))
    if parts is not None and half < _NO_SPREAD:
        parts, limit = None, "no_spread"
    estimate = float(np.mean([one.value for one in b]) - np.mean([one.value for one in a]))
    is_crossed = parts is not None and design == "crossed"
    return MethodDifference(
        estimate=estimate,
        low=None if parts is None else max(-1.0, estimate - half),
        high=None if parts is None else min(1.0, estimate + half),
        p_value=None if parts is None else find_p(parts),
        df=None if parts is None else join_df(parts),
        seed_share=None if parts is None else _find_seed_share(parts, a, b, is_paired=is_paired),
        num_seeds_a=len(a),
        num_seeds_b=len(b),
        num_items=min(len(one.ids) for one in (*a, *b)),
        num_clusters=num_clusters,
        is_paired=is_paired,
        design=design,
        limit=limit,
        num_carrying=_count_carrying(a, b) if is_crossed else None,
        seeds_needed=None if parts is None else count_seeds_needed(parts),
        items_needed=count_items_needed(parts, len(a[0].ids)) if is_crossed and parts else None,
    )


def _find_design(a: Sequence[Items], b: Sequence[Items], *, is_paired: bool) -> Design:
    """Return how items relate to seeds; a few items that two seeds drew alike are chance.

    Raises:
        EvaluationError: if paired runs answered other items.
    """
    if is_paired:
        for one, two in zip(a, b, strict=True):
            subtract_items(one, two)
    runs = [*b] if is_paired else [*a, *b]
    if all((one.ids, one.clusters) == (runs[0].ids, runs[0].clusters) for one in (*a, *b)):
        return "crossed"
    sets = [set(one.ids) for one in runs]
    most = max(len(x & y) / min(len(x), len(y)) for x, y in combinations(sets, 2))
    return "nested" if most < _FEW_SHARED else "overlapping"


def _find_limit(num_seeds: int, num_clusters: int, design: Design) -> Limit:
    if num_seeds < MIN_SEEDS:
        return "few_seeds"
    if design == "overlapping":
        return "overlapping"
    return "one_cluster" if num_clusters < 2 else ""


def _find_parts(
    a: Sequence[Items], b: Sequence[Items], design: Design, *, is_paired: bool
) -> Components:
    if design == "crossed":
        (one, sizes), (two, _) = (_sum_runs(side) for side in (a, b))
        return split_variance(one, two, sizes, is_paired=is_paired)
    means = [np.array([one.value for one in side]) for side in (a, b)]
    sides = [means[1] - means[0]] if is_paired else means
    spread = [(side.var(ddof=1) / len(side), len(side) - 1) for side in sides]
    seed, df = join_sides([(np.asarray(variance), count) for variance, count in spread])
    none, estimate = np.zeros(()), np.asarray(means[1].mean() - means[0].mean())
    return Components(estimate, seed, none, none, df, np.ones(()), min(map(len, means)))


def _sum_runs(side: Sequence[Items]) -> tuple[Floats, Floats]:
    return sum_clusters(np.stack([one.values for one in side]), side[0].clusters)


def _count_carrying(a: Sequence[Items], b: Sequence[Items]) -> float:
    (one, sizes), (two, _) = _sum_runs(a), _sum_runs(b)
    return float(count_carrying(two.mean(axis=0) - one.mean(axis=0), sizes))


def _find_seed_share(
    parts: Components, a: Sequence[Items], b: Sequence[Items], *, is_paired: bool
) -> float:
    """Return the trainings' share of the variance; of nested runs clusters have theirs in seeds."""
    if parts.cluster > 0:
        return float(parts.seed_alone / (parts.seed_alone + parts.cluster))
    gains = [subtract_items(one, two) for one, two in zip(a, b, strict=True)] if is_paired else []
    sides = [list(zip(gains, b, strict=True))] if is_paired else []
    sides = sides or [[(one.values, one) for one in side] for side in (a, b)]
    clusters = sum(
        float(find_variance(*sum_clusters(values, one.clusters))) / len(side) ** 2
        for side in sides
        for values, one in side
    )
    return max(0.0, 1 - clusters / float(parts.seed))
