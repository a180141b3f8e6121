"""Tests of paired differences: McNemar's by item, a permutation by whole cluster; and their power.

Adjusting several p-values is done where the comparisons are made (``paired``).
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from groupwise.evaluation.intervals import is_constant
from groupwise.evaluation.untyped import TTestPower, mcnemar, monte_carlo_test, permutation_test

NUM_PERMUTATIONS = 9999
EXACT_BELOW = 25
_COMPRESSED_ABOVE = 8
_BATCH_SIZE = 250_000
POWER = 0.8
SIGNIFICANCE = 0.05
_MAX_ITEMS = 10**9
_SIGNS = np.asarray([-1.0, 1.0])
Floats = NDArray[np.float64]


def score_mcnemar(num_a_only: int, num_b_only: int) -> float:
    """Return McNemar's p-value, exact below 25 discordant items, else corrected.

    It takes items as independent.

    Source: McNemar 1947, through statsmodels ``mcnemar``.
    """
    table = [[0, num_a_only], [num_b_only, 0]]
    exact = num_a_only + num_b_only < EXACT_BELOW
    return float(mcnemar(table, exact=exact, correction=True).pvalue)


def permute_clusters(gains: Floats, *, seed: int) -> float:
    """Return the two-sided p-value of swapping the two policies in whole clusters.

    Args:
        gains: (clusters,) sum of the differences of each cluster's items.
        seed: seed of the draws.

    Returns:
        The p-value: exact where there are no more than 9 999 ways to swap, otherwise from
        9 999 random ones. 1 where less than two clusters moved at all. With fewer than six clusters
        it cannot be below 5 %.

    Source: Fisher 1935, "The design of experiments", section 21 (a randomised block for each
    cluster), through scipy's ``permutation_test`` and ``monte_carlo_test``.
    """
    moved = gains[gains != 0]
    if len(moved) < 2:
        return 1.0
    if 2 ** min(len(moved), 64) <= NUM_PERMUTATIONS:
        return _enumerate_swaps(moved)
    return _sample_swaps(moved, np.random.default_rng(seed))


def _enumerate_swaps(gains: Floats) -> float:
    result = permutation_test(
        (gains,), np.sum, permutation_type="samples", vectorized=True, n_resamples=NUM_PERMUTATIONS
    )
    return float(result.pvalue)


def _sample_swaps(gains: Floats, random: np.random.Generator) -> float:
    """Return the p-value from random swaps, drawn together for clusters of equal difference.

    Of m clusters that differ by the same amount, a binomial number keeps its sign.
    """
    sizes, places, counts = np.unique(np.abs(gains), return_inverse=True, return_counts=True)
    if len(sizes) * _COMPRESSED_ABOVE > len(gains):
        return _run_test(gains, lambda size: gains * random.choice(_SIGNS, size))
    totals = np.zeros(len(sizes))
    np.add.at(totals, places, gains)

    def swap(size: tuple[int, int]) -> Floats:
        kept = random.binomial(counts, 0.5, size=size)
        return sizes * np.asarray(2 * kept - counts, dtype=np.float64)

    return _run_test(totals, swap)


def _run_test(gains: Floats, swap: Callable[[tuple[int, int]], Floats]) -> float:
    result = monte_carlo_test(
        gains,
        swap,
        np.sum,
        vectorized=True,
        n_resamples=NUM_PERMUTATIONS,
        batch=max(1, _BATCH_SIZE // len(gains)),
    )
    return float(result.pvalue)


def measure_effect(gains: Floats) -> float | None:
    """Return the mean of paired differences over their standard deviation.

    None where they do not spread, or there is only one.

    Source: Cohen 1988, "Statistical power analysis for the behavioral sciences", section 2.3.5
    (d for dependent pairs).
    """
    if is_constant(gains):
        return None
    return float(gains.mean() / gains.std(ddof=1))


def count_items_needed(effect_size: float | None, design_effect: float | None) -> int | None:
    """Return the items that show a difference of this size with 80 % power at the 5 % level.

    They are in clusters like those measured (``design_effect``, taken as 1 where it is less or
    not known). None where the difference is 0, not known, or too small for 10^9 items.

    Source: statsmodels ``TTestPower`` (one sample of differences, two-sided), which for right
    and wrong answers stands in for the power of McNemar's test.
    """
    if not effect_size:
        return None
    most = _MAX_ITEMS // max(1.0, design_effect or 1.0)
    if _find_power(effect_size, most) < POWER:
        return None
    num_items = 2.0
    if _find_power(effect_size, num_items) < POWER:
        num_items = TTestPower().solve_power(
            effect_size=abs(effect_size), alpha=SIGNIFICANCE, power=POWER
        )
    return math.ceil(float(num_items) * max(1.0, design_effect or 1.0))


def _find_power(effect_size: float, num_items: float) -> float:
    return float(TTestPower().power(abs(effect_size), num_items, SIGNIFICANCE))
