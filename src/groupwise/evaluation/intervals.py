"""Intervals of 95 %: Wilson's for a share of independent items, a bootstrap for clustered ones.

Items of one group (a session) resemble each other, so counting them as independent makes an
interval too narrow. The bootstrap here draws whole groups. Seeds come from the caller.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from groupwise.evaluation.untyped import bootstrap, proportion_confint

NUM_RESAMPLES = 2000
LEVEL = 0.95
_BATCH = 200
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


def sum_by_group(groups: Sequence[str], cells: Floats) -> Floats:
    """Return the sums of ``cells`` (items, C) by group as (groups, C), groups by name."""
    _, index = np.unique(np.asarray(groups, dtype=object).astype(str), return_inverse=True)
    sums = np.zeros((int(index.max()) + 1, cells.shape[1]))
    np.add.at(sums, index, cells)
    return sums


def bound_clustered(
    groups: Sequence[str],
    cells: Floats,
    statistic: Callable[[Floats], Floats],
    *,
    seed: int,
) -> list[Interval | None]:
    """Return percentile bootstrap intervals (95 %) of statistics of sums, drawing whole groups.

    Args:
        groups: group of each item.
        cells: (items, C) values whose sums over the drawn items the statistics are made of.
        statistic: takes sums (..., C), returns K statistics (K, ...); NaN where undefined.
        seed: seed of the draws.

    Returns:
        K intervals; None where the statistic is undefined in every draw or there is only one
        group, about whose like nothing is known.

    Source: Field & Welsh 2007, "Bootstrapping clustered data" (the cluster bootstrap), through
    ``scipy.stats.bootstrap``. Deviation: draws in which a statistic is undefined are left out.
    """
    sums = sum_by_group(groups, cells)
    if len(sums) < 2:
        return [None] * len(statistic(sums.sum(axis=0)))

    def score(drawn: NDArray[np.intp], axis: int = -1) -> Floats:
        return statistic(sums[drawn].sum(axis=axis - 1))

    draws = draw_groups(len(sums), score, seed=seed, num_resamples=NUM_RESAMPLES, batch=_BATCH)
    return [_take_percentiles(row) for row in draws]


def draw_groups(
    num_groups: int,
    statistic: Callable[..., Floats],
    *,
    seed: int,
    num_resamples: int = NUM_RESAMPLES,
    batch: int | None = None,
) -> Floats:
    """Return K statistics of ``num_resamples`` draws of group indices as (K, draws).

    Without ``batch`` the statistic takes one draw (groups,) at a time and returns (K,).
    """
    result: Any
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        result = bootstrap(
            (np.arange(num_groups),),
            statistic,
            n_resamples=num_resamples,
            batch=batch,
            vectorized=batch is not None,
            method="percentile",
            rng=np.random.default_rng(seed),
        )
    return np.asarray(result.bootstrap_distribution, dtype=np.float64)


def _take_percentiles(draws: Floats) -> Interval | None:
    defined = draws[np.isfinite(draws)]
    if not len(defined):
        return None
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(defined, [tail, 1 - tail])
    return float(low), float(high)
