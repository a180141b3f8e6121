"""Metrics: one number per policy, split and name, each with its interval, n and split digest.

Names are ``POLICY/METRIC``. What cannot be computed is left out and never 0. Comparing two
policies is the job of ``paired``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike
from pydantic import TypeAdapter

from groupwise.core import EvaluationError, derive_seed, write_json
from groupwise.evaluation.clusters import Interval, clustered_ratio
from groupwise.evaluation.intervals import widen_certain, widen_interval, widen_recalls
from groupwise.evaluation.label_metrics import (
    bound_scores,
    debias_error,
    fill_cells,
    rate_cells,
    score_cells,
)
from groupwise.evaluation.predictions import (
    Prediction,
    check_labels,
    digest_items,
    group_by_policy,
    have_truths,
)
from groupwise.evaluation.records import exact, read_as
from groupwise.evaluation.scoring import (
    MAX_LABELS,
    MAX_SLICES,
    collect_items,
    keep_whole_pairs,
    list_counted,
    list_drawn_measures,
    list_sliced,
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

    Per policy: accuracy (an invalid answer is wrong), invalid_rate, precision:LABEL, recall:LABEL,
    f1:LABEL, balanced_accuracy, brier, ece, latency_p50_s and latency_p95_s;
    accuracy[FIELD=VALUE], invalid_rate[FIELD=VALUE] and SCORE[FIELD=VALUE] of each value of the
    fields named in ``slices``, and pair_accuracy[FIELD=VALUE] of the pairs that lie within. Where
    predictions have them: pass@k and mean@k of ``samples``, pair_accuracy of ``pair`` (n counts
    pairs) and the mean of each of ``scores``.

    Means and ratios of sums have the interval of ``clustered_ratio``; balanced_accuracy, ece (which
    is without what chance adds) and latencies that of draws of whole clusters. With a single
    cluster nothing is known about others: the interval is [0, 1] (latencies: lowest to highest).

    Items without truths have no accuracy. Free text, which is ``labels=()`` or more than 20 labels,
    has no metrics by label (precision, recall, F1, balanced accuracy, Brier score, calibration
    error).

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
    if not have_truths(items):
        labels = ()
    if labels:
        check_labels(items, labels)
    by_label = labels if len(labels) <= MAX_LABELS else ()
    for name in (*list_counted(items), *list_drawn_measures(items)):
        found = collect_items(items, name)
        yield _average(name, found.values, found.clusters)
    if by_label:
        yield from _measure_labels(items, by_label, seed)
    yield from _measure_latency(items, seed)
    for name in slices:
        yield from _measure_slices(items, name)


def _average(name: str, values: ArrayLike, clusters: Sequence[str]) -> Row:
    """Return a mean of items' values in [0, 1]."""
    array = np.asarray(values, dtype=np.float64)
    ends = clustered_ratio(array, np.ones(len(array)), clusters)
    return name, float(array.mean()), ends or (0.0, 1.0), len(array)


def _measure_labels(items: Sequence[Prediction], labels: Sequence[str], seed: int) -> Iterator[Row]:
    """Yield ratios of sums over items, and what only draws of whole clusters have intervals of."""
    clusters = [item.cluster for item in items]
    cells = fill_cells(items, labels)
    recalls: list[tuple[float, Interval]] = []
    for name, tops, bases, n in rate_cells(cells, labels):
        top, base = np.column_stack([tops, bases]).sum(axis=0)
        ends = clustered_ratio(tops, bases, clusters) or (0.0, 1.0)
        recalls += [(float(top / base), ends)] if name.startswith("recall:") else []
        yield name, float(top / base), ends, n
    balanced = float(score_cells(cells.sum(axis=0), labels)[0])
    ends, error_ends = bound_scores(clusters, cells, labels, seed=seed)
    ends = widen_recalls(widen_certain(ends, balanced, clusters), balanced, recalls)
    yield "balanced_accuracy", balanced, ends, len(items)
    num_known = sum(item.probabilities is not None for item in items)
    if num_known:
        error = float(debias_error(cells.sum(axis=0), labels))
        yield "ece", error, error_ends, num_known


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
    parts: dict[str, list[Prediction]] = {}
    for item in items:
        if item.fields.get(field) is not None:
            parts.setdefault(str(item.fields[field]), []).append(item)
    if len(parts) > MAX_SLICES:
        raise EvaluationError(
            f"cannot slice by {field}", got=f"{len(parts)} values", expected=f"{MAX_SLICES} or less"
        )
    for value, part in sorted(parts.items()):
        for name in list_sliced(part):
            rows = keep_whole_pairs(part) if name == "pair_accuracy" else part
            found = collect_items(rows, name)
            yield _average(f"{name}[{field}={value}]", found.values, found.clusters)


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
