"""Calibration: whether an answer held with confidence 0.8 is right 8 times out of 10.

Uses label probabilities only; items without them do not take part, but for the Brier score of
invalid answers. Nothing is recalibrated.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from groupwise.evaluation.predictions import Prediction, check_labels
from groupwise.evaluation.untyped import binned_statistic, brier_score_loss

NUM_BINS = 10
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ReliabilityBin:
    """Items whose confidence is in [low, high); the last bin includes its upper edge.

    Attributes:
        low: lower edge.
        high: upper edge.
        confidence: mean confidence of the bin's items, None if it has none.
        accuracy: share of them that is right, None if it has none.
        num_items: how many there are.
    """

    low: float
    high: float
    confidence: float | None
    accuracy: float | None
    num_items: int


def stack_probabilities(predictions: Sequence[Prediction], labels: Sequence[str]) -> Floats:
    """Return label probabilities as (items, labels), each row summing to exactly 1.

    Raises:
        EvaluationError: if a label is outside the set.
    """
    check_labels(predictions, labels)
    given = [item.probabilities for item in predictions if item.probabilities is not None]
    rows = [[one.get(name, 0.0) for name in labels] for one in given]
    table = np.asarray(rows, dtype=np.float64).reshape(len(rows), len(labels))
    return table / table.sum(axis=1, keepdims=True)


def rate_confidence(
    predictions: Sequence[Prediction], labels: Sequence[str]
) -> tuple[Floats, Floats]:
    """Return each item's confidence, in [1/L, 1], and whether its likeliest label is true (0/1).

    Items without probabilities are left out. The likeliest label counts, whatever the text
    says: calibration is about the probabilities.
    """
    known = [item for item in predictions if item.probabilities is not None]
    probabilities = stack_probabilities(known, labels)
    correct = [
        labels[int(row.argmax())] == item.label
        for row, item in zip(probabilities, known, strict=True)
    ]
    confidence = probabilities.max(axis=1)
    return np.clip(confidence, 1 / len(labels), 1.0), np.asarray(correct, dtype=np.float64)


def find_bin_edges(num_labels: int, num_bins: int = NUM_BINS) -> Floats:
    """Return ``num_bins + 1`` equally spaced edges over [1/L, 1]."""
    return np.linspace(1 / num_labels, 1, num_bins + 1)


def bin_reliability(
    predictions: Sequence[Prediction], labels: Sequence[str], *, num_bins: int = NUM_BINS
) -> tuple[ReliabilityBin, ...]:
    """Return mean confidence and accuracy of equally wide bins of confidence.

    Source: Guo et al. 2017, "On Calibration of Modern Neural Networks", section 2. Deviation:
    the bins cover [1/L, 1] and not [0, 1], because the likeliest of L labels has at least 1/L.
    """
    confidence, correct = rate_confidence(predictions, labels)
    edges = find_bin_edges(len(labels), num_bins)
    if not len(confidence):
        return tuple(ReliabilityBin(a, b, None, None, 0) for a, b in pairwise(edges.tolist()))
    means = binned_statistic(confidence, [confidence, correct], "mean", bins=edges).statistic
    counts = binned_statistic(confidence, confidence, "count", bins=edges).statistic
    return tuple(
        ReliabilityBin(low, high, float(mean), float(share), int(count))
        if count
        else ReliabilityBin(low, high, None, None, 0)
        for (low, high), mean, share, count in zip(
            pairwise(edges.tolist()), *means, counts, strict=True
        )
    )


def score_calibration_error(bins: Sequence[ReliabilityBin]) -> float | None:
    """Return the expected calibration error in [0, 1], None without items.

    Source: Guo et al. 2017, eq. 3: mean over items of |accuracy - confidence| of their bin.
    """
    filled = [
        (abs(part.accuracy - part.confidence), part.num_items)
        for part in bins
        if part.accuracy is not None and part.confidence is not None
    ]
    if not filled:
        return None
    gaps, counts = zip(*filled, strict=True)
    return float(np.average(gaps, weights=counts))


def is_silent(item: Prediction) -> bool:
    """Whether an item has neither an answer nor probabilities."""
    return item.predicted is None and item.probabilities is None


def score_brier(predictions: Sequence[Prediction], labels: Sequence[str]) -> float | None:
    """Return the Brier score in [0, 1] (0 is best), None without probabilities.

    An invalid answer without probabilities counts as the worst: 1. A valid one whose
    probabilities are not known is left out.

    Source: Brier 1950, eq. 2, halved as in scikit-learn's ``scale_by_half`` so that two labels
    give the mean squared error of one label's probability.
    """
    known = [item for item in predictions if item.probabilities is not None]
    if not known:
        return None
    probabilities = stack_probabilities(known, labels)
    index = {label: number for number, label in enumerate(labels)}
    truths = [index[item.label] for item in known]
    numbers = list(range(len(labels)))
    score = float(brier_score_loss(truths, probabilities, labels=numbers, scale_by_half=True))
    num_silent = sum(map(is_silent, predictions))
    return (score * len(known) + num_silent) / (len(known) + num_silent)
