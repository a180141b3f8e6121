"""Scoring: the values of a measure, item by item, from predictions.

Only measures that are means of values of items are here, pass@k and mean@k of several sampled
answers among them.
"""

import json
import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from groupwise.core import EvaluationError, describe_unknown
from groupwise.evaluation.items import Items
from groupwise.evaluation.predictions import (
    Prediction,
    digest_items,
    group_by_policy,
    have_truths,
)

MAX_LABELS = 20
MAX_SLICES = 20
_Unit = tuple[str, str, str | None, str | None, float]
"""Id, cluster, label, answer and value of one item, or of one pair of items."""


def list_measures(predictions: Sequence[Prediction]) -> tuple[str, ...]:
    """Return the measures of the predictions that are means of values of items.

    invalid_rate and, where items have truths, accuracy; recall:LABEL (20 labels or less); pass@k,
    mean@k, pair_accuracy and the names in ``scores`` where predictions have them; and of fields
    with 20 values or less what ``list_sliced`` names, such as accuracy[FIELD=VALUE].
    """
    labels = sorted({item.label for item in predictions if item.label is not None})
    return (
        *list_counted(predictions),
        *(f"recall:{label}" for label in (labels if len(labels) <= MAX_LABELS else ())),
        *_list_slices(predictions),
        *list_drawn_measures(predictions),
    )


def list_counted(predictions: Iterable[Prediction]) -> tuple[str, ...]:
    """Return what is counted of all items: accuracy, where they have truths, and invalid_rate."""
    return ("accuracy", "invalid_rate") if have_truths(predictions) else ("invalid_rate",)


def list_drawn_measures(predictions: Sequence[Prediction]) -> tuple[str, ...]:
    """Return pass@k, mean@k, pair_accuracy and the names in ``scores``, where there are any."""
    has_pairs = any(item.pair for item in predictions)
    return (
        *list_sampled_measures(predictions),
        *(("pair_accuracy",) if has_pairs else ()),
        *sorted({name for item in predictions for name in item.scores}),
    )


def _list_slices(predictions: Iterable[Prediction]) -> Iterator[str]:
    parts: dict[str, dict[str, list[Prediction]]] = {}
    for item in predictions:
        for name, value in item.fields.items():
            if isinstance(value, (str, int, bool)):
                parts.setdefault(name, {}).setdefault(str(value), []).append(item)
    for name in sorted(parts):
        if len(parts[name]) <= MAX_SLICES:
            for value, part in sorted(parts[name].items()):
                yield from (f"{measure}[{name}={value}]" for measure in list_sliced(part))


def list_sliced(part: Iterable[Prediction]) -> tuple[str, ...]:
    """Return the measures that a part of the items has, too.

    These are ``list_counted``, pair_accuracy where it has whole pairs, and the names in ``scores``.
    """
    rows = list(part)
    has_pairs = bool(keep_whole_pairs(rows))
    scores = sorted({name for item in rows for name in item.scores})
    return (*list_counted(rows), *(("pair_accuracy",) if has_pairs else ()), *scores)


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
    """Return the values of a measure for the rows of one policy and split, sorted by id.

    Raises:
        EvaluationError: as ``read_items``.
    """
    _check_measure(rows, measure)
    name, chosen = _choose_part(rows, measure)
    units = list(_score_pairs(chosen) if name == "pair_accuracy" else _score_rows(chosen, name))
    ids, clusters, labels, answers, scores = zip(*units, strict=True) if units else ((),) * 5
    values = np.asarray(scores, dtype=np.float64)
    is_binary = bool(np.isin(values, (0, 1)).all())
    first, digest = rows[0], digest_items(rows)
    return Items(
        measure,
        first.split,
        first.policy,
        ids,
        clusters,
        values,
        is_binary,
        digest,
        labels,
        answers,
    )


def _check_measure(rows: Sequence[Prediction], measure: str) -> None:
    known = list_measures(rows)
    kind, _, k = measure.partition("@")
    is_pass = kind == "pass" and k.isdecimal() and 1 <= int(k) <= count_fewest_samples(rows)
    if measure in known or is_pass:
        return
    where = f"{rows[0].policy} on {rows[0].split}"
    raise EvaluationError(f"{where}: {describe_unknown('measure', measure, known)}")


def _choose_part(rows: Sequence[Prediction], measure: str) -> tuple[str, Sequence[Prediction]]:
    """Return what a measure is without its slice, and the rows that it is of."""
    name, _, part = measure.partition("[")
    if name not in list_sliced(rows) or not part:
        return measure, rows
    field, _, value = part[:-1].partition("=")
    has_it = [row.fields.get(field) is not None and str(row.fields[field]) == value for row in rows]
    chosen = [row for row, is_in in zip(rows, has_it, strict=True) if is_in]
    return name, keep_whole_pairs(chosen) if name == "pair_accuracy" else chosen


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
    if measure.startswith(("pass@", "mean@")):
        return score_samples(item, measure)
    return item.scores.get(measure)


def _score_pairs(rows: Sequence[Prediction]) -> Iterator[_Unit]:
    """Yield one unit per pair: right if both halves are."""
    pairs: dict[str, list[Prediction]] = {}
    for item in rows:
        if item.pair:
            pairs.setdefault(item.pair, []).append(item)
    for name in sorted(pairs):
        halves = pairs[name]
        clusters = sorted({item.cluster for item in halves})
        if len(halves) != 2 or len(clusters) != 1:
            raise EvaluationError(
                f"pair {name} of {halves[0].split} cannot be scored",
                got=f"{len(halves)} items in {len(clusters)} clusters",
                expected="two items of one cluster",
                fix="keep both halves together when splitting and sampling",
            )
        label, answer = (
            json.dumps(parts, ensure_ascii=False)
            for parts in ([item.label for item in halves], [item.predicted for item in halves])
        )
        yield name, clusters[0], label, answer, all(item.is_correct for item in halves)


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
