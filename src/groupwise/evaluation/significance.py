"""McNemar's test of paired differences, Holm's adjustment, and how many items show a difference."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from groupwise.evaluation.intervals import is_constant
from groupwise.evaluation.untyped import TTestPower, mcnemar

EXACT_BELOW = 25
POWER = 0.8
SIGNIFICANCE = 0.05
_MAX_ITEMS = 10**9
Floats = NDArray[np.float64]


def score_mcnemar(num_a_only: int, num_b_only: int) -> float:
    """Return McNemar's p-value, exact below 25 discordant items, else corrected.

    It takes items as independent.

    Source: McNemar 1947, through statsmodels ``mcnemar``.
    """
    table = [[0, num_a_only], [num_b_only, 0]]
    exact = num_a_only + num_b_only < EXACT_BELOW
    return float(mcnemar(table, exact=exact, correction=True).pvalue)


def adjust_holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted for their number, in the order given.

    statsmodels gives the same, and collects garbage every time: a fifth of a second where a model
    is loaded.

    Source: Holm 1979.
    """
    order = np.argsort(p_values, kind="stable")
    raw = np.asarray(p_values)[order] * np.arange(len(order), 0, -1)
    adjusted = np.empty(len(order))
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(raw))
    return adjusted.tolist()


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
