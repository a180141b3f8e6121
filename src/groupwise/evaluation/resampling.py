"""The metrics once more, as functions of sums, so that thousands of draws cost one array.

Reported values come from scikit-learn; what is here only feeds intervals, and tests hold the
two together. In shapes ``...`` stands for any number of draws.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from groupwise.evaluation.calibration import (
    NUM_BINS,
    find_bin_edges,
    is_silent,
    rate_confidence,
    stack_probabilities,
)
from groupwise.evaluation.confusion import encode_answers
from groupwise.evaluation.predictions import Prediction

Floats = NDArray[np.float64]


def fill_cells(items: Sequence[Prediction], labels: Sequence[str]) -> Floats:
    """Return what each item adds to the sums of ``score_cells``, as (items, cells).

    Cells in order: L·(L+1) confusion counts, the item's Brier term, 1 if it has one, 1 if it has
    probabilities, and for each of B bins its confidence minus its correctness.
    """
    num_labels = len(labels)
    truths, answers = encode_answers(items, labels)
    confusion = np.zeros((len(items), num_labels * (num_labels + 1)))
    places = np.asarray(truths) * (num_labels + 1) + np.asarray(answers)
    confusion[np.arange(len(items)), places] = 1
    calibration = np.zeros((len(items), 3 + NUM_BINS))
    calibration[[number for number, item in enumerate(items) if is_silent(item)], :2] = 1
    known = [number for number, item in enumerate(items) if item.probabilities is not None]
    calibration[known] = _fill_calibration([items[number] for number in known], labels)
    return np.hstack([confusion, calibration])


def _fill_calibration(items: Sequence[Prediction], labels: Sequence[str]) -> Floats:
    probabilities = stack_probabilities(items, labels)
    truth = np.asarray([[item.label == label for label in labels] for item in items])
    gap = probabilities - truth.reshape(probabilities.shape)
    brier = (gap**2).sum(axis=1) / 2
    confidence, correct = rate_confidence(items, labels)
    inner_edges = find_bin_edges(len(labels))[1:-1]
    gaps = np.zeros((len(items), NUM_BINS))
    gaps[np.arange(len(items)), np.digitize(confidence, inner_edges)] = confidence - correct
    return np.column_stack([brier, np.ones((len(items), 2)), gaps])


def score_cells(sums: Floats, labels: Sequence[str]) -> Floats:
    """Return (K, ...) metrics of sums (..., cells); NaN where undefined.

    The K metrics in order: balanced accuracy (mean recall of the labels that occur), F1 of
    each label, Brier score and expected calibration error.
    """
    num_labels = len(labels)
    num_cells = num_labels * (num_labels + 1)
    table = sums[..., :num_cells].reshape(*sums.shape[:-1], num_labels, num_labels + 1)
    hits = np.diagonal(table[..., :num_labels], axis1=-2, axis2=-1)
    num_true, num_answered = table.sum(axis=-1), table[..., :num_labels].sum(axis=-2)
    brier, num_scored, num_known = np.moveaxis(sums[..., num_cells : num_cells + 3], -1, 0)
    gaps = sums[..., -NUM_BINS:]
    with np.errstate(invalid="ignore", divide="ignore"):
        recall = np.where(num_true > 0, hits / num_true, 0)
        return np.stack(
            [
                recall.sum(axis=-1) / (num_true > 0).sum(axis=-1),
                *np.moveaxis(2 * hits / (num_true + num_answered), -1, 0),
                np.where(num_known > 0, brier / num_scored, np.nan),
                np.abs(gaps).sum(axis=-1) / num_known,
            ]
        )
