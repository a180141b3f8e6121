"""Metrics: one number per policy, split and name, each with its interval, n and split digest.

Names are ``POLICY/METRIC``. What cannot be computed is left out and never 0. Comparing two
policies is the job of ``paired``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from pydantic import TypeAdapter

from groupwise.core import EvaluationError, derive_seed, write_json
from groupwise.evaluation.intervals import (
    Interval,
    bound_clustered,
    bound_mean,
    bound_share,
    widen_certain,
    widen_interval,
)
from groupwise.evaluation.label_metrics import count_confusion, fill_cells, is_silent, score_cells
from groupwise.evaluation.predictions import Prediction, check_labels, digest_items, group_by_policy
from groupwise.evaluation.records import exact, read_as
from groupwise.evaluation.scoring import (
    MAX_LABELS,
    MAX_SLICES,
    collect_items,
    list_drawn_measures,
)

_LATENCY_RESAMPLES = 500
_QUANTILES = {"latency_p50_s": 0.5, "latency_p95_s": 0.95}


@exact
@dataclass(frozen=True, slots=True)
class Metric:
    """One measured number.

    Attributes:
        name: ``POLICY/METRIC``, such as ``grpo/accuracy`` or ``grpo/accuracy[language=zh]``.
        split: name of the split.
        value: the number; shares are in [0, 1], latencies in seconds.
        low: lower end of the 95 % interval.
        high: upper end.
        n: number of items it is computed on.
        split_digest: digest of the whole split's item ids and labels.
    """

    name: str
    split: str
    value: float
    low: float
    high: float
    n: int
    split_digest: str

    @property
    def policy(self) -> str:
        """The part of the name before the stroke."""
        return self.name.partition("/")[0]

    @property
    def measure(self) -> str:
        """The part of the name after the stroke."""
        return self.name.partition("/")[2]


_METRICS = TypeAdapter(list[Metric])
Row = tuple[str, float, Interval, int]


def compute_metrics(
    predictions: Sequence[Prediction],
    *,
    labels: Sequence[str],
    seed: int = 0,
    slices: Sequence[str] = (),
) -> list[Metric]:
    """Compute every metric of every policy on every split.

    Per policy: accuracy (an invalid answer is wrong), invalid_rate, precision:LABEL and
    recall:LABEL with Wilson intervals; accuracy_clustered (the same value), balanced_accuracy,
    f1:LABEL, brier, ece, latency_p50_s and latency_p95_s with intervals from drawing whole
    clusters; accuracy[FIELD=VALUE] of each value of the fields named in ``slices``. Where
    predictions have them, also by drawing clusters: pass@k and mean@k of ``samples``,
    pair_accuracy of ``pair`` (n counts pairs) and the mean of each of ``scores``. With a
    single cluster nothing is known about other clusters: accuracy_clustered is left out and the
    other drawn intervals are [0, 1] (latencies: lowest to highest). Drawn intervals of shares
    are widened as ``means`` says: rare errors are drawn too rarely.

    Free text, which is ``labels=()`` or more than 20 labels, has no metrics by label
    (precision, recall, F1, balanced accuracy, Brier score, calibration error).

    Raises:
        EvaluationError: without predictions, with a label outside the set, an item answered
            twice by one policy, a slice of more than 20 values, or a pair that is not two
            items of one cluster.
    """
    if not predictions:
        raise EvaluationError("there are no predictions to evaluate")
    found: list[Metric] = []
    for (split, policy), items in group_by_policy(predictions).items():
        digest = digest_items(items)
        seed_here = derive_seed(seed, "metrics", split)
        found += [
            Metric(f"{policy}/{name}", split, value, *widen_interval(ends, value), n, digest)
            for name, value, ends, n in _measure(items, labels, slices, seed_here)
        ]
    return found


def _measure(
    items: Sequence[Prediction], labels: Sequence[str], slices: Sequence[str], seed: int
) -> Iterator[Row]:
    if labels:
        check_labels(items, labels)
    by_label = labels if len(labels) <= MAX_LABELS else ()
    yield _rate("accuracy", sum(item.is_correct for item in items), len(items))
    yield _rate("invalid_rate", sum(item.predicted is None for item in items), len(items))
    if by_label:
        yield from _measure_labels(items, by_label)
    yield from _measure_means(items, ("accuracy", *list_drawn_measures(items)), seed)
    if by_label:
        yield from _measure_drawn(items, by_label, seed)
    yield from _measure_latency(items, seed)
    for name in slices:
        yield from _measure_slices(items, name)


def _measure_means(
    items: Sequence[Prediction], measures: Sequence[str], seed: int
) -> Iterator[Row]:
    """Yield means of values of items, with intervals from drawing whole clusters."""
    for measure in measures:
        found = collect_items(items, measure)
        ends = bound_mean(found, seed=seed)
        if measure != "accuracy":
            yield measure, found.value, ends or (0.0, 1.0), len(found.ids)
        elif ends is not None:
            yield "accuracy_clustered", found.value, ends, len(found.ids)


def _measure_labels(items: Sequence[Prediction], labels: Sequence[str]) -> Iterator[Row]:
    confusion = count_confusion(items, labels)
    for index, label in enumerate(labels):
        hits = confusion.counts[index][index]
        num_answered = sum(row[index] for row in confusion.counts)
        num_true = sum(confusion.counts[index])
        if num_answered:
            yield _rate(f"precision:{label}", hits, num_answered)
        if num_true:
            yield _rate(f"recall:{label}", hits, num_true)


def _rate(name: str, num_hits: int, num_items: int) -> Row:
    return name, num_hits / num_items, bound_share(num_hits, num_items), num_items


def _measure_drawn(items: Sequence[Prediction], labels: Sequence[str], seed: int) -> Iterator[Row]:
    """Yield what is made of sums over items, with intervals from drawing whole clusters."""
    num_known = sum(item.probabilities is not None for item in items)
    num_items = {"brier": num_known + sum(map(is_silent, items)), "ece": num_known}
    names = ("balanced_accuracy", *(f"f1:{label}" for label in labels), *num_items)
    clusters = [item.cluster for item in items]
    cells = fill_cells(items, labels)
    values = score_cells(cells.sum(axis=0), labels).tolist()
    drawn = bound_clustered(clusters, cells, lambda sums: score_cells(sums, labels), seed=seed)
    for name, value, found in zip(names, values, drawn, strict=True):
        ends = found or (0.0, 1.0)
        if np.isfinite(value):
            bounds = ends if name in num_items else widen_certain(ends, value, clusters)
            yield name, value, bounds, num_items.get(name, len(items))


def _measure_latency(items: Sequence[Prediction], seed: int) -> Iterator[Row]:
    known: dict[str, list[float]] = {}
    for item in items:
        if item.latency_s is not None:
            known.setdefault(item.cluster, []).append(item.latency_s)
    if not known:
        return
    clusters = [np.asarray(known[name], dtype=np.float64) for name in sorted(known)]
    every = np.concatenate(clusters)
    quantiles = list(_QUANTILES.values())

    ends = [(float(every.min()), float(every.max()))] * len(quantiles)
    if len(clusters) > 1:
        size = (_LATENCY_RESAMPLES, len(clusters))
        drawn: list[list[int]] = (
            np.random.default_rng(seed).integers(len(clusters), size=size).tolist()
        )
        draws = [
            np.quantile(np.concatenate([clusters[i] for i in draw]), quantiles) for draw in drawn
        ]
        ends = [(float(a), float(b)) for a, b in np.quantile(draws, [0.025, 0.975], axis=0).T]
    for name, value, pair in zip(_QUANTILES, np.quantile(every, quantiles), ends, strict=True):
        yield name, float(value), pair, len(every)


def _measure_slices(items: Sequence[Prediction], field: str) -> Iterator[Row]:
    parts: dict[str, list[bool]] = {}
    for item in items:
        if item.fields.get(field) is not None:
            parts.setdefault(str(item.fields[field]), []).append(item.is_correct)
    if len(parts) > MAX_SLICES:
        raise EvaluationError(
            f"cannot slice by {field}", got=f"{len(parts)} values", expected=f"{MAX_SLICES} or less"
        )
    for value in sorted(parts):
        yield _rate(f"accuracy[{field}={value}]", sum(parts[value]), len(parts[value]))


def write_metrics(path: Path, metrics: Sequence[Metric]) -> None:
    """Replace ``path`` by a JSON list of metrics."""
    write_json(path, [asdict(metric) for metric in metrics])


def read_metrics(path: Path) -> list[Metric]:
    """Return the metrics of a file.

    Raises:
        DataError: if the file is missing or is not a JSON list.
        EvaluationError: if it is not one of metrics.
    """
    return read_as(path, _METRICS)
