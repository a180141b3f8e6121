"""One temperature for a policy's label probabilities: what it is sure of, it should be right on.

It changes how sure a policy is and never which label is the likeliest.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

Floats = NDArray[np.float64]
MIN_ITEMS = 20
"""Items below which no temperature is fitted."""
_LIMITS = (1 / 20, 20.0)
_LEAST = 1e-12
"""Stands for a probability that was rounded to 0."""


@dataclass(frozen=True, slots=True)
class Temperature:
    """What was fitted, or why nothing was.

    Attributes:
        value: above 1: the policy was too sure; None: it is not known.
        num_items: items with probabilities that it was fitted on.
        num_mistakes: of them, those whose likeliest label is wrong.
        reason: why there is none.
    """

    value: float | None
    num_items: int
    num_mistakes: int
    reason: str = ""


def fit_temperature(shares: Sequence[Mapping[str, float]], truths: Sequence[str]) -> Temperature:
    """Return the temperature under which the true labels are likeliest, within 1/20 to 20.

    Where all or none of the likeliest labels are right, ever lower or higher ones would fit
    better: none is known then.

    Args:
        shares: probability by label for each item, of the same labels.
        truths: the label of each item, among them.

    Source: Guo et al. 2017, "On Calibration of Modern Neural Networks", section 4.2.
    """
    pairs = zip(shares, truths, strict=True)
    mistakes = sum(max(one, key=one.__getitem__) != truth for one, truth in pairs)
    known = (len(shares), mistakes)
    if len(shares) < MIN_ITEMS:
        return Temperature(None, *known, f"fewer than {MIN_ITEMS} items")
    if mistakes in (0, len(shares)):
        return Temperature(None, *known, "no mistake" if mistakes == 0 else "nothing right")
    labels = list(shares[0])
    logs = np.log(np.clip([[one[label] for label in labels] for one in shares], _LEAST, None))
    true = logs[np.arange(len(logs)), [labels.index(truth) for truth in truths]]

    def lose(log_value: float) -> float:
        value = math.exp(log_value)
        total: Floats = np.logaddexp.reduce(logs / value, axis=1)
        return float(np.mean(total - true / value))

    found: float = minimize_scalar(lose, bounds=np.log(_LIMITS), method="bounded").x
    return Temperature(math.exp(found), *known)


def temper(shares: Mapping[str, float], value: float) -> dict[str, float]:
    """Return probabilities at another temperature; at 1 they stay what they are."""
    logs = np.log(np.clip(list(shares.values()), _LEAST, None)) / value
    scaled = np.exp(logs - np.logaddexp.reduce(logs))
    return dict(zip(shares, scaled.tolist(), strict=True))
