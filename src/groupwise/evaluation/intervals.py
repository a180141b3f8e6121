"""Intervals of 95 % of what is measured on items in clusters: shares, means and differences.

Items of one cluster (a session) resemble each other, so counting them as independent makes an
interval too narrow: whole clusters are drawn. Draws of clusters of which hardly any has an error
spread too little, and where none has one they do not spread at all: no interval of shares is taken
from draws alone. Seeds come from the caller.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from groupwise.evaluation.clusters import (
    LEVEL,
    Floats,
    Interval,
    clustered_ratio,
    count_effective,
    sum_clusters,
)
from groupwise.evaluation.untyped import normal, proportion_confint, student_t

NUM_RESAMPLES = 2000
_BATCH_SIZE = 250_000
_COMPRESSED_ABOVE = 8
_NO_SPREAD = 1e-12


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
    by_cell, sizes = sum_clusters(cells.T, clusters)
    sums = np.ascontiguousarray(by_cell.T)
    if len(sums) < 2:
        return [None] * len(statistic(sums.sum(axis=0)))
    tail = find_tail(float(count_effective(sizes)))
    with np.errstate(invalid="ignore", divide="ignore"):
        draws = statistic(draw_sums(sums, seed=seed, num_resamples=num_resamples))
    return [_take_percentiles(row, tail) for row in draws]


def find_tail(num_clusters: float) -> float:
    """Return the share of draws to leave out at each end for an interval of 95 %.

    Less than 2.5 %, since the draws of n clusters spread too little by sqrt((n - 1) / n) and the
    spread is itself only estimated, with n - 1 degrees of freedom.

    Source: Hesterberg 2015, "What teachers should know about the bootstrap", section 5.3 (the
    expanded percentile interval). Deviation: clusters of unlike sizes count as
    ``count_effective`` of them.
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


def _take_percentiles(draws: Floats, tail: float) -> Interval | None:
    defined = draws[np.isfinite(draws)]
    if not len(defined):
        return None
    low, high = np.quantile(defined, [tail, 1 - tail])
    return float(low), float(high)


def count_effective_items(clusters: Sequence[str], values: Floats) -> float:
    """Return how many independent items would tell a mean as well as these items of clusters.

    At most as many as there are items. Where all items are alike the clusters count: nothing is
    known about how far items of a cluster resemble each other.

    Args:
        clusters: cluster of each item; more than one.
        values: (N,) values.
    """
    effect = measure_design_effect(clusters, values)
    if effect is None:
        return float(count_effective(sum_clusters(values, clusters)[1]))
    return len(values) / max(1.0, effect * len(values) / (len(values) - 1))


def measure_design_effect(clusters: Sequence[str], values: Floats) -> float | None:
    """Return how many times clusters raise the variance of the mean of ``values`` (items,).

    1 where every item is a cluster of its own; None where the values do not spread or there is
    only one cluster.

    Source: Kish 1965, "Survey sampling", section 8.2, with the variance of a mean that is robust to
    clusters (Liang & Zeger 1986).
    """
    sums, sizes = sum_clusters(values, clusters)
    if len(sums) < 2 or is_constant(values):
        return None
    residuals = float(((sums - values.mean() * sizes) ** 2).sum())
    num_items, num_clusters = len(values), len(sums)
    correction = num_clusters / (num_clusters - 1) * (num_items - 1) / num_items
    return correction * residuals / (num_items * float(values.var()))


def is_constant(values: Floats) -> bool:
    """Whether values do not spread, beyond rounding; a single one does not."""
    return len(values) < 2 or float(np.ptp(values)) < _NO_SPREAD


def widen_recalls(
    drawn: Interval, value: float, recalls: Sequence[tuple[float, Interval]]
) -> Interval:
    """Return the interval of balanced accuracy, where a recall of 0 or 1 may not spread in draws.

    It is then no narrower than what the intervals of the recalls say, whose distances add in
    squares: a constant answer has recalls of 1 and 0 in every draw.

    Source: Zou & Donner 2008, "Construction of confidence limits about effect measures: a general
    approach", equation 3, for the mean of independent recalls.

    Args:
        drawn: from draws of whole clusters.
        value: mean of the recalls.
        recalls: each with its interval.
    """
    if all(0.0 < recall < 1.0 for recall, _ in recalls):
        return drawn
    below = np.array([recall - ends[0] for recall, ends in recalls])
    above = np.array([ends[1] - recall for recall, ends in recalls])
    low = value - float(np.sqrt((below**2).sum())) / len(recalls)
    high = value + float(np.sqrt((above**2).sum())) / len(recalls)
    return max(0.0, min(drawn[0], low)), min(1.0, max(drawn[1], high))


def widen_certain(drawn: Interval, value: float, clusters: Sequence[str]) -> Interval:
    """Return the interval of a share; where no draw differs from 0 or 1, that of so many items."""
    if not (value in (0.0, 1.0) and drawn == (value, value)):
        return drawn
    return clustered_ratio(np.full(len(clusters), value), np.ones(len(clusters)), clusters) or drawn
