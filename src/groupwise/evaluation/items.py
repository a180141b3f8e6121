"""Items: the values of one measure, item by item, as everything paired needs them.

Only measures that are means of values of items are here. Means are taken by the callers, and
two sets of items are compared in ``paired``.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from groupwise.core import EvaluationError, describe_unknown
from groupwise.evaluation.predictions import Prediction, digest_items, group_by_policy
from groupwise.evaluation.sampled import (
    count_fewest_samples,
    list_sampled_measures,
    score_samples,
)

MAX_LABELS = 20
MAX_SLICES = 20
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Items:
    """What one policy reached on each item of a split.

    Attributes:
        measure: the measure whose mean this is, such as ``accuracy`` or ``pass@4``.
        split: name of the split.
        policy: who answered.
        ids: content ids of the N items (ids of pairs for ``pair_accuracy``), ascending.
        clusters: what each item is clustered by.
        values: (N,) values in [0, 1].
        is_binary: whether every value is 0 or 1.
        split_digest: digest of the whole split's item ids and labels.
        labels: truth of each item; of a pair, a JSON list. May be empty.
        answers: answer to each item, None for an invalid one; of a pair, a JSON list. May be
            empty.

    Raises:
        EvaluationError: without items, if lengths differ, ids do not ascend or a value is not
            a finite number in [0, 1].
    """

    measure: str
    split: str
    policy: str
    ids: tuple[str, ...]
    clusters: tuple[str, ...]
    values: Floats
    is_binary: bool
    split_digest: str
    labels: tuple[str, ...] = ()
    answers: tuple[str | None, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what would give a wrong number later."""
        where = f"{self.measure} of {self.policy} on {self.split}"
        if not self.ids:
            raise EvaluationError(f"there are no items for {where}")
        sizes = {len(self.ids), len(self.clusters), len(self.values)}
        sizes |= {len(part) for part in (self.labels, self.answers) if part}
        if len(sizes) > 1:
            raise EvaluationError(f"the parts of {where} differ in length", got=sorted(sizes))
        if any(one >= two for one, two in zip(self.ids, self.ids[1:], strict=False)):
            raise EvaluationError(f"ids must ascend, each once, for {where}")
        wrong = np.flatnonzero(~((self.values >= 0) & (self.values <= 1)))
        if len(wrong):
            raise EvaluationError(
                f"item {self.ids[wrong[0]]} has a wrong value for {where}",
                got=float(self.values[wrong[0]]),
                expected="a finite number in [0, 1]",
            )
        if self.is_binary and not np.isin(self.values, (0, 1)).all():
            raise EvaluationError(f"{where} is not binary", expected="values 0 and 1 only")

    @property
    def value(self) -> float:
        """The mean of the values."""
        return float(self.values.mean())


@dataclass(frozen=True, slots=True)
class _Unit:
    """One item, or one pair of items, with its value."""

    id: str
    cluster: str
    label: str
    answer: str | None
    value: float


def list_measures(predictions: Sequence[Prediction]) -> tuple[str, ...]:
    """Return the measures of the predictions that are means of values of items.

    accuracy and invalid_rate; recall:LABEL (20 labels or less); accuracy[FIELD=VALUE] of
    fields with 20 values or less; pass@k, mean@k, pair_accuracy and the names in ``scores``
    where predictions have them.
    """
    labels = sorted({item.label for item in predictions})
    return (
        *("accuracy", "invalid_rate"),
        *(f"recall:{label}" for label in (labels if len(labels) <= MAX_LABELS else ())),
        *_list_slices(predictions),
        *list_drawn_measures(predictions),
    )


def list_drawn_measures(predictions: Sequence[Prediction]) -> tuple[str, ...]:
    """Return pass@k, mean@k, pair_accuracy and the names in ``scores``, where there are any."""
    has_pairs = any(item.pair for item in predictions)
    return (
        *list_sampled_measures(predictions),
        *(("pair_accuracy",) if has_pairs else ()),
        *sorted({name for item in predictions for name in item.scores}),
    )


def _list_slices(predictions: Iterable[Prediction]) -> Iterator[str]:
    values: dict[str, set[str]] = {}
    for item in predictions:
        for name, value in item.fields.items():
            if isinstance(value, (str, int, bool)):
                values.setdefault(name, set()).add(str(value))
    for name in sorted(values):
        if len(values[name]) <= MAX_SLICES:
            yield from (f"accuracy[{name}={value}]" for value in sorted(values[name]))


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
    units = list(_score_pairs(rows) if measure == "pair_accuracy" else _score_rows(rows, measure))
    values = np.asarray([unit.value for unit in units], dtype=np.float64)
    return Items(
        measure=measure,
        split=rows[0].split,
        policy=rows[0].policy,
        ids=tuple(unit.id for unit in units),
        clusters=tuple(unit.cluster for unit in units),
        values=values,
        is_binary=bool(np.isin(values, (0, 1)).all()),
        split_digest=digest_items(rows),
        labels=tuple(unit.label for unit in units),
        answers=tuple(unit.answer for unit in units),
    )


def _check_measure(rows: Sequence[Prediction], measure: str) -> None:
    known = list_measures(rows)
    kind, _, k = measure.partition("@")
    is_pass = kind == "pass" and k.isdecimal() and 1 <= int(k) <= count_fewest_samples(rows)
    if measure in known or is_pass:
        return
    where = f"{rows[0].policy} on {rows[0].split}"
    raise EvaluationError(f"{where}: {describe_unknown('measure', measure, known)}")


def _score_rows(rows: Sequence[Prediction], measure: str) -> Iterator[_Unit]:
    for item in rows:
        value = _score(item, measure)
        if value is not None:
            yield _Unit(item.example_id, item.cluster, item.label, item.predicted, float(value))


def _score(item: Prediction, measure: str) -> float | None:
    if measure == "accuracy":
        return item.is_correct
    if measure == "invalid_rate":
        return item.predicted is None
    if measure.startswith("recall:"):
        return item.is_correct if item.label == measure.removeprefix("recall:") else None
    if measure.startswith("accuracy["):
        field, _, value = measure[len("accuracy[") : -1].partition("=")
        has_it = item.fields.get(field) is not None and str(item.fields[field]) == value
        return item.is_correct if has_it else None
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
        yield _Unit(name, clusters[0], label, answer, all(item.is_correct for item in halves))
