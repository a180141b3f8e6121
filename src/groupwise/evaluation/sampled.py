"""Measures of several sampled answers per item: pass@k and mean@k.

They are values of items; means and intervals are the job of ``items`` and ``metrics``.
"""

import math
from collections.abc import Sequence

from groupwise.evaluation.predictions import Prediction


def estimate_pass(num_samples: int, num_right: int, k: int) -> float:
    """Return the probability that one of ``k`` samples is right, without bias, in [0, 1].

    It is 1 - C(n - c, k) / C(n, k) with n samples, c of them right: one minus the chance that
    ``k`` of the samples are all wrong. ``k`` is 1 to ``num_samples``.

    Source: Chen et al. 2021, "Evaluating large language models trained on code", equation 1.
    Deviation: whole numbers are divided once, where the paper multiplies fractions, so that 0
    and 1 are exact.
    """
    return 1 - math.comb(num_samples - num_right, k) / math.comb(num_samples, k)


def list_sampled_measures(predictions: Sequence[Prediction]) -> tuple[str, ...]:
    """Return pass@k for k = 1, 2, 4, ... and the most there is, and mean@k; () without samples.

    The most there is are the samples of the item that has fewest; k of mean@k is that number
    too, though the mean is over all samples of each item.
    """
    most = count_fewest_samples(predictions)
    powers = [2**n for n in range(most.bit_length()) if 2**n < most]
    return (*(f"pass@{k}" for k in [*powers, most]), f"mean@{most}") if most else ()


def count_fewest_samples(predictions: Sequence[Prediction]) -> int:
    """Return the samples of the item that has fewest, of those that have any; 0 without."""
    return min((len(item.samples) for item in predictions if item.samples), default=0)


def score_samples(item: Prediction, measure: str) -> float | None:
    """Return the item's pass@k or mean@k; None if it has no samples."""
    if not item.samples:
        return None
    num_right = sum(item.samples)
    kind, _, k = measure.partition("@")
    if kind == "mean":
        return num_right / len(item.samples)
    return estimate_pass(len(item.samples), num_right, int(k))
