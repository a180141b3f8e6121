"""How large a paired difference is, and how many items it takes to see one of that size."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from groupwise.evaluation.untyped import OLS, TTestPower

POWER = 0.8
SIGNIFICANCE = 0.05
_NO_SPREAD = 1e-12
_MAX_ITEMS = 10**9
Floats = NDArray[np.float64]


def measure_effect(gains: Floats) -> float | None:
    """Return the mean of paired differences over their standard deviation.

    None where they do not spread, or there is only one.

    Source: Cohen 1988, "Statistical power analysis for the behavioral sciences", section 2.3.5
    (d for dependent pairs).
    """
    if _is_constant(gains):
        return None
    return float(gains.mean() / gains.std(ddof=1))


def measure_design_effect(clusters: Sequence[str], gains: Floats) -> float | None:
    """Return how many times clusters raise the variance of the mean of ``gains`` (items,).

    1 where every item is a cluster of its own; None where the differences do not spread or there
    is only one cluster.

    Source: Kish 1965, "Survey sampling", section 8.2, with the variance that is robust to
    clusters (Liang & Zeger 1986) of statsmodels ``OLS(...).fit(cov_type="cluster")``.
    """
    names, codes = np.unique(np.asarray(clusters, dtype=object).astype(str), return_inverse=True)
    if len(names) < 2 or _is_constant(gains):
        return None
    model = OLS(gains, np.ones(len(gains)))
    clustered = model.fit(cov_type="cluster", cov_kwds={"groups": codes})
    return float((clustered.bse[0] / model.fit().bse[0]) ** 2)


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


def _is_constant(gains: Floats) -> bool:
    return len(gains) < 2 or float(np.ptp(gains)) < _NO_SPREAD
