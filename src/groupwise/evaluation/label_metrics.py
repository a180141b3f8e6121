"""What labels say beyond right and wrong: confusion, reliability, metrics of both, temperature.

Calibration is whether an answer held with confidence 0.8 is right 8 times out of 10. It is about
label probabilities only; items without them do not take part, but for the Brier score of invalid
answers. Invalid answers are counted beside the labels and are never one of them. Metrics are
functions of sums over items, so that thousands of draws of clusters cost one array; tests hold them
to scikit-learn's.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.stats import binned_statistic, norm

from groupwise.evaluation.predictions import Prediction, check_labels
from groupwise.evaluation.statistics import Floats, Interval, bound_clustered

NUM_BINS = 10
_HALVINGS = 20
_LEAST_FACTOR = 1e-4
MIN_ITEMS = 20  # below which no temperature is fitted
_LIMITS = (1 / 20, 20.0)
_LEAST = 1e-12  # stands for a probability that was rounded to 0


@dataclass(frozen=True, slots=True)
class Confusion:
    """Counts of truths (L rows) by answers (L + 1 columns, the last of invalid answers)."""

    labels: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]

    @property
    def num_items(self) -> int:
        """All items, invalid answers included."""
        return sum(map(sum, self.counts))


def count_confusion(predictions: Sequence[Prediction], labels: Sequence[str]) -> Confusion:
    """Count truths by answers; with no predictions all counts are 0.

    Raises:
        EvaluationError: if a label is outside the set.
    """
    from sklearn.metrics import confusion_matrix

    truths, answers = _encode_answers(predictions, labels)
    if not truths:
        return Confusion(tuple(labels), ((0,) * (len(labels) + 1),) * len(labels))
    table = confusion_matrix(truths, answers, labels=range(len(labels) + 1))
    return Confusion(tuple(labels), tuple(tuple(map(int, row)) for row in table[:-1]))


def _encode_answers(
    predictions: Sequence[Prediction], labels: Sequence[str]
) -> tuple[list[int], list[int]]:
    """Return truths and answers as indices into ``labels``; the last one is an invalid answer."""
    check_labels(predictions, labels)
    index = {label: number for number, label in enumerate(labels)}
    answers = [len(labels) if p.predicted is None else index[p.predicted] for p in predictions]
    return [index[str(p.label)] for p in predictions], answers


@dataclass(frozen=True, slots=True)
class ReliabilityBin:
    """Items whose confidence is in [low, high); the last bin includes its upper edge."""

    low: float
    high: float
    confidence: float | None  # mean of the bin's items; None if it has none
    accuracy: float | None  # share of them that is right
    num_items: int


def bin_reliability(
    predictions: Sequence[Prediction], labels: Sequence[str]
) -> tuple[ReliabilityBin, ...]:
    """Return mean confidence and accuracy of equally wide bins of confidence.

    Source: Guo et al. 2017, "On Calibration of Modern Neural Networks", section 2. Deviation:
    the bins cover [1/L, 1] and not [0, 1], because the likeliest of L labels has at least 1/L.

    Raises:
        EvaluationError: if a label is outside the set.
    """
    check_labels(predictions, labels)
    known = [item for item in predictions if item.probabilities is not None]
    confidence, correct = _rate_confidence(_stack_probabilities(known, labels), known, labels)
    edges: Any = _find_bin_edges(len(labels))
    if not known:
        return tuple(ReliabilityBin(a, b, None, None, 0) for a, b in pairwise(edges.tolist()))
    means = binned_statistic(confidence, [confidence, correct], "mean", bins=edges).statistic
    counts = binned_statistic(confidence, confidence, "count", bins=edges).statistic
    rows = zip(pairwise(edges.tolist()), *means, counts, strict=True)
    return tuple(
        ReliabilityBin(low, high, float(mean), float(share), int(count))
        if count
        else ReliabilityBin(low, high, None, None, 0)
        for (low, high), mean, share, count in rows
    )


def _find_bin_edges(num_labels: int) -> Floats:
    return np.linspace(1 / num_labels, 1, NUM_BINS + 1)


def _stack_probabilities(known: Sequence[Prediction], labels: Sequence[str]) -> Floats:
    """Return label probabilities as (items, labels), each row summing to exactly 1."""
    rows = [[(item.probabilities or {}).get(name, 0.0) for name in labels] for item in known]
    table = np.asarray(rows, dtype=np.float64).reshape(len(rows), len(labels))
    return table / table.sum(axis=1, keepdims=True)


def _rate_confidence(
    probabilities: Floats, known: Sequence[Prediction], labels: Sequence[str]
) -> tuple[Floats, Floats]:
    """Return each item's confidence, in [1/L, 1], and whether its likeliest label is true (0/1).

    The likeliest label counts, whatever the text says: calibration is about the probabilities.
    """
    likeliest = probabilities.argmax(axis=1)
    correct = [labels[i] == item.label for i, item in zip(likeliest, known, strict=True)]
    confidence = probabilities.max(axis=1)
    return np.clip(confidence, 1 / len(labels), 1.0), np.asarray(correct, dtype=np.float64)


def fill_cells(items: Sequence[Prediction], labels: Sequence[str]) -> Floats:
    """Return what each item adds to the sums that metrics are made of, as (items, cells).

    Cells in order: L·(L+1) confusion counts, the item's Brier term, 1 if it has one, 1 if it has
    probabilities, and for each of B bins the variance that its correctness has where its confidence
    is right, and its confidence minus its correctness.

    Raises:
        EvaluationError: if a label is outside the set.
    """
    num_labels = len(labels)
    truths, answers = _encode_answers(items, labels)
    confusion = np.zeros((len(items), num_labels * (num_labels + 1)))
    places = np.asarray(truths) * (num_labels + 1) + np.asarray(answers)
    confusion[np.arange(len(items)), places] = 1
    calibration = np.zeros((len(items), 3 + 2 * NUM_BINS))
    # An item with neither an answer nor probabilities has the worst Brier term, 1.
    silent = [item.predicted is None and item.probabilities is None for item in items]
    calibration[silent, :2] = 1
    numbers = [number for number, item in enumerate(items) if item.probabilities is not None]
    known = [items[number] for number in numbers]
    probabilities = _stack_probabilities(known, labels)
    truth = np.asarray([[item.label == label for label in labels] for item in known])
    brier = ((probabilities - truth.reshape(probabilities.shape)) ** 2).sum(axis=1) / 2
    confidence, correct = _rate_confidence(probabilities, known, labels)
    gaps = np.zeros((len(known), NUM_BINS))
    bins = np.digitize(confidence, _find_bin_edges(num_labels)[1:-1])
    gaps[np.arange(len(known)), bins] = confidence - correct
    spread = np.zeros_like(gaps)
    spread[np.arange(len(known)), bins] = confidence * (1 - confidence)
    calibration[numbers] = np.column_stack([brier, np.ones((len(known), 2)), spread, gaps])
    return np.hstack([confusion, calibration])


def rate_cells(cells: Floats, labels: Sequence[str]) -> Iterator[tuple[str, Floats, Floats, int]]:
    """Yield the metrics that are ratios of two sums over items: name, both parts (items,), and n.

    Precision, recall and F1 of each label, and the Brier score; what has no base is left out. An
    invalid answer without probabilities has the worst Brier score, 1; a valid one whose
    probabilities are not known is left out.

    Source: Brier 1950, eq. 2, halved so that two labels give the mean squared error of one label's
    probability.
    """
    table, rest = _shape_table(cells, labels)
    for index, label in enumerate(labels):
        hit = table[:, index, index]
        true, answered = table[:, index].sum(axis=-1), table[:, :, index].sum(axis=-1)
        if answered.any():
            yield f"precision:{label}", hit, answered, int(answered.sum())
        if true.any():
            yield f"recall:{label}", hit, true, int(true.sum())
        if answered.any() or true.any():
            yield f"f1:{label}", 2 * hit, true + answered, len(cells)
    brier, scored, known = rest[:, :3].T
    if known.any():
        yield "brier", brier, scored, int(scored.sum())


def score_cells(sums: Floats, labels: Sequence[str]) -> Floats:
    """Return (2, ...) metrics of sums (..., cells) of items or draws; NaN where undefined.

    Balanced accuracy (mean recall of the labels that occur) and expected calibration error, which
    are no ratios of two sums.

    Source: Guo et al. 2017, eq. 3 (the mean over items of |accuracy - confidence| of their bin).
    """
    table, rest = _shape_table(sums, labels)
    hits, num_true = np.diagonal(table, axis1=-2, axis2=-1), table.sum(axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        recall = np.where(num_true > 0, hits / num_true, 0)
        balanced = recall.sum(axis=-1) / (num_true > 0).sum(axis=-1)
        return np.stack([balanced, np.abs(rest[..., -NUM_BINS:]).sum(axis=-1) / rest[..., 2]])


def debias_error(sums: Floats, labels: Sequence[str], *, noise: float = 1.0) -> Floats:
    """Return (...) expected calibration errors of sums (..., cells) without what chance adds.

    The mean of absolute gaps is above 0 also where confidence is right: of 100 items in ten bins
    about 0.10, of 10 items 0.25. So the gaps of all bins are shrunk by one factor s in [0, 1], such
    that gaps of s times their size would show, with the noise of so many items, the absolute gaps
    that were seen. It is 0 where chance alone shows as much. ``noise`` is the variance of a bin's
    gap over that of its items: 1, and 2 in bootstrap draws, which draw anew what is drawn already.

    Source: the mean of a folded normal (Leone, Nelson & Nottingham 1961, eq. 3), solved for its
    location; one factor for all bins is our choice, since bins of few items tell nothing alone.
    """
    rest: Any = _shape_table(sums, labels)[1]
    gaps: Any = np.abs(rest[..., -NUM_BINS:])
    sigma = np.sqrt(noise * rest[..., -2 * NUM_BINS : -NUM_BINS])
    seen: Any = gaps.sum(axis=-1)
    low: Any = np.zeros_like(seen)
    high: Any = np.ones_like(seen)
    safe = np.where(sigma > 0, sigma, 1.0)
    for _ in range(_HALVINGS):
        middle: Any = (low + high) / 2
        means = middle[..., None] * gaps
        ratio = means / safe
        folded = safe * np.sqrt(2 / np.pi) * np.exp(-(ratio**2) / 2)
        folded += means * (1 - 2 * norm.cdf(-ratio))
        is_less: Any = np.asarray(np.where(sigma > 0, folded, means).sum(axis=-1) < seen)
        low += is_less * (middle - low)
        high -= ~is_less * (high - middle)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(high < _LEAST_FACTOR, 0.0, high * seen) / rest[..., 2]


def bound_scores(
    clusters: Sequence[str], cells: Floats, labels: Sequence[str], *, seed: int
) -> tuple[Interval, Interval]:
    """Return the intervals of balanced accuracy and of the calibration error without chance."""

    def score(sums: Floats) -> Floats:
        return np.stack([score_cells(sums, labels)[0], debias_error(sums, labels, noise=2.0)])

    balanced, error = bound_clustered(clusters, cells, score, seed=seed)
    return balanced or (0.0, 1.0), error or (0.0, 1.0)


def _shape_table(cells: Floats, labels: Sequence[str]) -> tuple[Floats, Floats]:
    """Return truths by answers (..., L, L + 1) and the other cells."""
    shape = (len(labels), len(labels) + 1)
    num_cells = shape[0] * shape[1]
    return cells[..., :num_cells].reshape(*cells.shape[:-1], *shape), cells[..., num_cells:]


@dataclass(frozen=True, slots=True)
class Temperature:
    """What was fitted, or why nothing was."""

    value: float | None  # above 1: the policy was too sure; None: it is not known
    num_items: int  # with probabilities
    num_mistakes: int  # of them, those whose likeliest label is wrong
    reason: str = ""  # why there is none


def fit_temperature(shares: Sequence[Mapping[str, float]], truths: Sequence[str]) -> Temperature:
    """Return the temperature under which the true labels are likeliest, within 1/20 to 20.

    Where all or none of the likeliest labels are right, ever lower or higher ones would fit
    better: none is known then. ``shares`` are probabilities by label for each item, of the same
    labels; ``truths`` are among these.

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
        return float(np.mean(np.logaddexp.reduce(logs / value, axis=1) - true / value))

    found: float = minimize_scalar(lose, bounds=np.log(_LIMITS), method="bounded").x
    return Temperature(math.exp(found), *known)


def temper(shares: Mapping[str, float], value: float) -> dict[str, float]:
    """Return probabilities at another temperature; at 1 they stay what they are."""
    logs = np.log(np.clip(list(shares.values()), _LEAST, None)) / value
    scaled = np.exp(logs - np.logaddexp.reduce(logs))
    return dict(zip(shares, scaled.tolist(), strict=True))
