"""Metrics: one number per policy, split and name, each with its interval, n and split digest.

Names are ``POLICY/METRIC``. What cannot be computed is left out and never 0. First the values of a
measure item by item, then the metrics of whole splits; comparing two policies is ``paired``'s job.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from pydantic import TypeAdapter

from groupwise.core import EvaluationError, derive_seed, describe_unknown, write_json
from groupwise.evaluation.label_metrics import (
    bound_scores,
    debias_error,
    fill_cells,
    rate_cells,
    score_cells,
)
from groupwise.evaluation.predictions import (
    Items,
    Prediction,
    check_labels,
    digest_items,
    exact,
    group_by_policy,
    have_truths,
    read_as,
)
from groupwise.evaluation.statistics import (
    Interval,
    clustered_ratio,
    widen_certain,
    widen_interval,
    widen_recalls,
)

METRIC_VERSIONS: Mapping[str, int] = {
    "accuracy": 2,
    "balanced_accuracy": 4,
    "brier": 4,
    "comparison": 4,
    "ece": 3,
    "f1": 4,
    "invalid_rate": 2,
    "latency": 1,
    "mean@k": 3,
    "pair_accuracy": 3,
    "pass@k": 3,
    "precision": 2,
    "recall": 2,
    "scores": 4,
    "slices": 2,
}
"""Version of each family of metrics; it rises with any change of a value or an interval."""
MAX_LABELS = MAX_SLICES = 20
_LATENCY_RESAMPLES = 500
_LATENCIES = {"latency_p50_s": 0.5, "latency_p95_s": 0.95}
Row = tuple[str, float, Interval, int]
_Unit = tuple[str, str, str | None, str | None, float]
"""Id, cluster, label, answer and value of one item, or of one pair of items."""


def list_measures(predictions: Sequence[Prediction]) -> tuple[str, ...]:
    """Return the measures of the predictions that are means of values of items.

    invalid_rate and, where items have truths, accuracy; recall:LABEL (20 labels or less); pass@k,
    mean@k, pair_accuracy and the names in ``scores`` where predictions have them; and of fields
    with 20 values or less what ``list_sliced`` names, such as accuracy[FIELD=VALUE].
    """
    labels = sorted({item.label for item in predictions if item.label is not None})
    fields: dict[str, dict[str, list[Prediction]]] = {}
    for item in predictions:
        for name, value in item.fields.items():
            if isinstance(value, (str, int, bool)):
                fields.setdefault(name, {}).setdefault(str(value), []).append(item)
    return (
        *list_counted(predictions),
        *(f"recall:{label}" for label in (labels if len(labels) <= MAX_LABELS else ())),
        *(
            f"{measure}[{name}={value}]"
            for name, parts in sorted(fields.items())
            if len(parts) <= MAX_SLICES
            for value, part in sorted(parts.items())
            for measure in list_sliced(part)
        ),
        *list_drawn_measures(predictions),
    )


def list_counted(predictions: Iterable[Prediction]) -> tuple[str, ...]:
    """Return what is counted of all items: accuracy, where they have truths, and invalid_rate."""
    return ("accuracy", "invalid_rate") if have_truths(predictions) else ("invalid_rate",)


def list_drawn_measures(predictions: Sequence[Prediction]) -> tuple[str, ...]:
    """Return pass@k, mean@k, pair_accuracy and the names in ``scores``, where there are any."""
    has_pairs = any(item.pair for item in predictions)
    scores = sorted({name for item in predictions for name in item.scores})
    return (
        *list_sampled_measures(predictions),
        *(("pair_accuracy",) if has_pairs else ()),
        *scores,
    )


def list_sliced(part: Sequence[Prediction]) -> tuple[str, ...]:
    """Return the measures that a part of the items has, too; pair_accuracy with whole pairs."""
    scores = sorted({name for item in part for name in item.scores})
    return (*list_counted(part), *(("pair_accuracy",) if keep_whole_pairs(part) else ()), *scores)


def keep_whole_pairs(part: Iterable[Prediction]) -> list[Prediction]:
    """Return the items of a part whose partner is in it, too."""
    pairs: dict[tuple[str, str, str], list[Prediction]] = {}
    for item in part:
        if item.pair:
            pairs.setdefault((item.policy, item.split, item.pair), []).append(item)
    return [item for halves in pairs.values() if len(halves) > 1 for item in halves]


def read_items(
    predictions: Sequence[Prediction], *, policy: str, split: str, measure: str
) -> Items:
    """Return the values of a measure, item by item.

    Items without the measure (no samples, another label, another field) are left out.

    Raises:
        EvaluationError: if the policy or the measure is not there, or a pair is not two items
            of one cluster.
    """
    chosen = [item for item in predictions if (item.policy, item.split) == (policy, split)]
    if not chosen:
        have = sorted({f"{item.policy} on {item.split}" for item in predictions})
        raise EvaluationError(f"there are no predictions of {policy} on {split}", got=have)
    ((_, rows),) = group_by_policy(chosen).items()
    return collect_items(rows, measure)


def collect_items(rows: Sequence[Prediction], measure: str) -> Items:
    """Return the values of a measure for the rows of one policy and split, sorted by id."""
    known, (kind, _, k) = list_measures(rows), measure.partition("@")
    is_pass = kind == "pass" and k.isdecimal() and 1 <= int(k) <= count_fewest_samples(rows)
    if measure not in known and not is_pass:
        where = f"{rows[0].policy} on {rows[0].split}"
        raise EvaluationError(f"{where}: {describe_unknown('measure', measure, known)}")
    name, chosen = measure, rows
    whole, _, part = measure.partition("[")
    if part and whole in list_sliced(rows):
        field, _, value = part[:-1].partition("=")
        name = whole
        chosen = [r for r in rows if r.fields.get(field) is not None]
        chosen = [row for row in chosen if str(row.fields[field]) == value]
        chosen = keep_whole_pairs(chosen) if name == "pair_accuracy" else chosen
    units = list(_score_pairs(chosen) if name == "pair_accuracy" else _score_rows(chosen, name))
    ids, clusters, labels, answers, scores = zip(*units, strict=True) if units else ((),) * 5
    values = np.asarray(scores, dtype=np.float64)
    return Items(
        measure=measure,
        split=rows[0].split,
        policy=rows[0].policy,
        ids=ids,
        clusters=clusters,
        values=values,
        is_binary=bool(np.isin(values, (0, 1)).all()),
        split_digest=digest_items(rows),
        labels=labels,
        answers=answers,
    )


def _score_rows(rows: Sequence[Prediction], measure: str) -> Iterator[_Unit]:
    for item in rows:
        value = _score(item, measure)
        if value is not None:
            yield item.example_id, item.cluster, item.label, item.predicted, float(value)


def _score(item: Prediction, measure: str) -> float | None:
    if measure == "accuracy":
        return item.is_correct
    if measure == "invalid_rate":
        return item.predicted is None
    if measure.startswith("recall:"):
        return item.is_correct if item.label == measure.removeprefix("recall:") else None
    if not measure.startswith(("pass@", "mean@")):
        return item.scores.get(measure)
    num_samples, num_right = len(item.samples), sum(item.samples)
    if not num_samples:
        return None
    if measure.startswith("mean@"):
        return num_right / num_samples
    return estimate_pass(num_samples, num_right, int(measure.removeprefix("pass@")))


def _score_pairs(rows: Sequence[Prediction]) -> Iterator[_Unit]:
    """Yield one unit per pair: right if both halves are."""
    pairs: dict[str, list[Prediction]] = {}
    for item in rows:
        if item.pair:
            pairs.setdefault(item.pair, []).append(item)
    for name, halves in sorted(pairs.items()):
        clusters = sorted({item.cluster for item in halves})
        if len(halves) != 2 or len(clusters) != 1:
            raise EvaluationError(
                f"pair {name} of {halves[0].split} cannot be scored",
                got=f"{len(halves)} items in {len(clusters)} clusters",
                expected="two items of one cluster",
                fix="keep both halves together when splitting and sampling",
            )
        label = json.dumps([item.label for item in halves], ensure_ascii=False)
        answer = json.dumps([item.predicted for item in halves], ensure_ascii=False)
        yield name, clusters[0], label, answer, all(item.is_correct for item in halves)


def estimate_pass(num_samples: int, num_right: int, k: int) -> float:
    """Return the probability that one of ``k`` samples is right, without bias, in [0, 1].

    It is 1 - C(n - c, k) / C(n, k) with n samples, c of them right; ``k`` is 1 to n.

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


@exact
@dataclass(frozen=True, slots=True)
class Metric:
    """One measured number."""

    name: str  # ``POLICY/METRIC``, such as ``grpo/accuracy`` or ``grpo/accuracy[language=zh]``
    split: str
    value: float  # shares are in [0, 1], latencies in seconds
    low: float  # ends of the 95 % interval
    high: float
    n: int  # items it is computed on
    split_digest: str  # of the whole split's item ids and labels

    @property
    def policy(self) -> str:
        """The part of the name before the stroke."""
        return self.name.partition("/")[0]

    @property
    def measure(self) -> str:
        """The part of the name after the stroke."""
        return self.name.partition("/")[2]


def compute_metrics(
    predictions: Sequence[Prediction],
    *,
    labels: Sequence[str],
    seed: int = 0,
    slices: Sequence[str] = (),
) -> list[Metric]:
    """Compute every metric of every policy on every split.

    Per policy: accuracy (an invalid answer is wrong), invalid_rate, precision:LABEL, recall:LABEL,
    f1:LABEL, balanced_accuracy, brier, ece, latency_p50_s and latency_p95_s; of each value of the
    fields named in ``slices`` what ``list_sliced`` names, such as accuracy[FIELD=VALUE]. Where
    predictions have them: pass@k and mean@k of ``samples``, pair_accuracy of ``pair`` (n counts
    pairs) and the mean of each of ``scores``.

    Means and ratios of sums have the interval of ``clustered_ratio``; balanced_accuracy, ece (which
    is without what chance adds) and latencies that of draws of whole clusters. With a single
    cluster nothing is known about others: the interval is [0, 1] (latencies: lowest to highest).
    Items without truths have no accuracy; free text (``labels=()``, or more than 20) has no metrics
    by label, nor Brier score, nor calibration error.

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
    for name in (*list_counted(items), *list_drawn_measures(items)):
        yield _average(items, name)
    if 0 < len(labels) <= MAX_LABELS:
        yield from _measure_labels(items, labels, seed)
    yield from _measure_latency(items, seed)
    for field in slices:
        parts: dict[str, list[Prediction]] = {}
        for item in items:
            if item.fields.get(field) is not None:
                parts.setdefault(str(item.fields[field]), []).append(item)
        if len(parts) > MAX_SLICES:
            given, most = f"{len(parts)} values", f"{MAX_SLICES} or less"
            raise EvaluationError(f"cannot slice by {field}", got=given, expected=most)
        for value, part in sorted(parts.items()):
            for name in list_sliced(part):
                rows = keep_whole_pairs(part) if name == "pair_accuracy" else part
                yield f"{name}[{field}={value}]", *_average(rows, name)[1:]


def _average(rows: Sequence[Prediction], measure: str) -> Row:
    """Return the mean of a measure in [0, 1] over the items that have it."""
    items = collect_items(rows, measure)
    ends = clustered_ratio(items.values, np.ones(len(items.values)), items.clusters)
    return measure, items.value, ends or (0.0, 1.0), len(items.values)


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
    every, quantiles = np.concatenate(clusters), list(_LATENCIES.values())
    ends = [(float(every.min()), float(every.max()))] * len(quantiles)
    if len(clusters) > 1:
        size = (_LATENCY_RESAMPLES, len(clusters))
        drawn = np.random.default_rng(seed).integers(len(clusters), size=size).tolist()
        draws = [np.quantile(np.concatenate([clusters[i] for i in d]), quantiles) for d in drawn]
        ends = [(float(a), float(b)) for a, b in np.quantile(draws, [0.025, 0.975], axis=0).T]
    for name, value, pair in zip(_LATENCIES, np.quantile(every, quantiles), ends, strict=True):
        yield name, float(value), pair, len(every)


def write_metrics(path: Path, metrics: Sequence[Metric]) -> None:
    """Replace ``path`` by a JSON list of metrics."""
    write_json(path, [asdict(metric) for metric in metrics])


def read_metrics(path: Path) -> list[Metric]:
    """Return the metrics of a file; errors as those of ``read_as``."""
    return read_as(path, TypeAdapter(list[Metric]))
