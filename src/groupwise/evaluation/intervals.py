"""Intervals of 95 %: Wilson's for a share of independent items, a bootstrap for clustered ones.

Items of one cluster (a session) resemble each other, so counting them as independent makes an
interval too narrow. The bootstrap here draws whole clusters. Seeds come from the caller.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from groupwise.evaluation.untyped import bootstrap, normal, proportion_confint, student_t

NUM_RESAMPLES = 2000
LEVEL = 0.95
_BATCH_SIZE = 250_000
_COMPRESSED_ABOVE = 8
Floats = NDArray[np.float64]
Interval = tuple[float, float]


def bound_share(num_hits: float, num_items: float) -> Interval:
    """Return Wilson's 95 % interval of ``num_hits / num_items``, in [0, 1].

    Source: Wilson 1927, through statsmodels ``proportion_confint(method="wilson")``.
    """
    low, high = proportion_confint(num_hits, num_items, alpha=1 - LEVEL, method="wilson")
    return widen_interval((float(low), float(high)), num_hits / num_items)


def widen_interval(interval: Interval, value: float) -> Interval:
    """Return the interval, widened to contain its value.

    Rounding moves an end past a share of 0 or 1, and a bootstrap of a biased statistic (the
    calibration error) can lie wholly above its value.
    """
    return min(interval[0], value), max(interval[1], value)


def sum_by_cluster(clusters: Sequence[str], cells: Floats) -> Floats:
    """Return the sums of ``cells`` (items, C) by cluster as (clusters, C), clusters by name."""
    _, index = np.unique(np.asarray(clusters, dtype=object).astype(str), return_inverse=True)
    sums = np.zeros((int(index.max()) + 1, cells.shape[1]))
    np.add.at(sums, index, cells)
    return sums


def count_effective(sizes: Floats) -> float:
    """Return how many clusters of one size are worth as much as clusters of ``sizes``.

    Source: Kish 1965, "Survey sampling", section 8.2: (sum of sizes)^2 / sum of squared sizes.
    """
    return float(sizes.sum() ** 2 / (sizes**2).sum())


def divide_sums(sums: Floats) -> Floats:
    """Return means (1, ...) of sums (..., 2) whose last axis is a sum and a count."""
    return (sums[..., 0] / sums[..., 1])[None]


def bound_clustered(
    clusters: Sequence[str],
    cells: Floats,
    statistic: Callable[[Floats], Floats],
    *,
    seed: int,
    num_resamples: int = NUM_RESAMPLES,
) -> list[Interval | None]:
    """Return bootstrap intervals (95 %) of statistics of sums, drawing whole clusters.

    Args:
        clusters: cluster of each item.
        cells: (items, C) values whose sums over the drawn items the statistics are made of.
        statistic: takes sums (..., C), returns K statistics (K, ...); NaN where undefined.
        seed: seed of the draws.
        num_resamples: number of draws.

    Returns:
        K intervals; None where the statistic is undefined in every draw or there is only one
        cluster, about whose like nothing is known.

    Source: Field & Welsh 2007, "Bootstrapping clustered data" (the cluster bootstrap), with
    the expanded percentiles of ``find_tail``. Deviation: draws in which a statistic is
    undefined are left out.
    """
    sums = sum_by_cluster(clusters, np.column_stack([cells, np.ones(len(cells))]))
    sums, sizes = sums[:, :-1], sums[:, -1]
    if len(sums) < 2:
        return [None] * len(statistic(sums.sum(axis=0)))
    tail = find_tail(count_effective(sizes))
    with np.errstate(invalid="ignore", divide="ignore"):
        draws = statistic(draw_sums(sums, seed=seed, num_resamples=num_resamples))
    return [_take_percentiles(row, tail) for row in draws]


def find_tail(num_clusters: float) -> float:
    """Return the share of draws to leave out at each end for an interval of 95 %.

    Less than 2.5 %, since the draws of n clusters spread too little by sqrt((n - 1) / n) and the
    spread is itself only estimated, with n - 1 degrees of freedom.

    Source: Hesterberg 2015, "What teachers should know about the bootstrap", section 5.3 (the
    expanded percentile interval). Deviation: clusters of unlike sizes count as
    ``count_effective`` of them, for which ``benchmarks/paired_statistics.py`` shows the coverage.
    """
    if num_clusters <= 1:
        return 0.0
    quantile = student_t.ppf((1 - LEVEL) / 2, num_clusters - 1)
    return float(normal.cdf(np.sqrt(num_clusters / (num_clusters - 1)) * quantile))


def draw_sums(sums: Floats, *, seed: int, num_resamples: int) -> Floats:
    """Return the sums of ``num_resamples`` bootstrap draws of the rows of ``sums``.

    A draw takes G of the G rows with replacement; its sum depends only on how often each row
    was taken, which is multinomial. Equal rows need one count for all of them (10 000 items
    that are right or wrong have three different differences), which makes many clusters cheap
    without changing the law of the draws; tests hold it to ``scipy.stats.bootstrap``.

    Args:
        sums: (G, C) sums by cluster.
        seed: seed of the draws.
        num_resamples: number of draws.

    Returns:
        (num_resamples, C) sums.
    """
    random = np.random.default_rng(seed)
    rows, counts = np.unique(sums, axis=0, return_counts=True)
    if len(rows) * _COMPRESSED_ABOVE <= len(sums):
        drawn = random.multinomial(len(sums), counts / len(sums), size=num_resamples)
        return drawn.astype(np.float64) @ rows
    return np.concatenate(list(_draw_rows(sums, random, num_resamples)))


def _draw_rows(sums: Floats, random: np.random.Generator, num_resamples: int) -> Iterator[Floats]:
    """Yield sums of draws in batches small enough for the processor's cache."""
    size = len(sums)
    batch = max(1, _BATCH_SIZE // size)
    for start in range(0, num_resamples, batch):
        num_draws = min(batch, num_resamples - start)
        index = random.integers(size, size=(num_draws, size))
        index += np.arange(num_draws)[:, None] * size
        counts = np.bincount(index.ravel(), minlength=num_draws * size)
        yield counts.reshape(num_draws, size).astype(np.float64) @ sums


def draw_clusters(
    num_clusters: int, statistic: Callable[..., Floats], *, seed: int, num_resamples: int
) -> Floats:
    """Return K statistics of ``num_resamples`` draws of cluster indices as (K, draws).

    For statistics that are not made of sums: it takes one draw (clusters,) at a time and returns
    (K,). Through ``scipy.stats.bootstrap``.
    """
    result: Any
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        result = bootstrap(
            (np.arange(num_clusters),),
            statistic,
            n_resamples=num_resamples,
            vectorized=False,
            method="percentile",
            rng=np.random.default_rng(seed),
        )
    return np.asarray(result.bootstrap_distribution, dtype=np.float64)


def _take_percentiles(draws: Floats, tail: float) -> Interval | None:
    defined = draws[np.isfinite(draws)]
    if not len(defined):
        return None
    low, high = np.quantile(defined, [tail, 1 - tail])
    return float(low), float(high)
