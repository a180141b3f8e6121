"""Items: the values of one measure, item by item, as everything paired needs them.

Two sets of items are matched one to one here; statistics of them are the job of ``intervals`` and
``paired``.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from groupwise.core import EvaluationError

_TIE = 1e-12
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
        labels: truth of each item, None where there is none; of a pair, a JSON list. May be empty.
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
    labels: tuple[str | None, ...] = ()
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


def keep_common(a: Items, b: Items) -> tuple[Items, Items]:
    """Return the items of both, for policies of which one has no value of some item."""
    ids = {*a.ids} & {*b.ids}
    return _keep(a, ids), _keep(b, ids)


def _keep(items: Items, ids: Collection[str]) -> Items:
    places = [place for place, one in enumerate(items.ids) if one in ids]
    return replace(
        items,
        values=items.values[places],
        ids=tuple(items.ids[n] for n in places),
        clusters=tuple(items.clusters[n] for n in places),
        labels=tuple(items.labels[n] for n in places) if items.labels else (),
        answers=tuple(items.answers[n] for n in places) if items.answers else (),
    )


@dataclass(frozen=True, slots=True)
class DiscordantItem:
    """One item on which two policies differ.

    Attributes:
        id: content id of the item (id of the pair for ``pair_accuracy``).
        cluster: what the item is clustered by.
        value_a: what policy a reached, in [0, 1].
        value_b: what policy b reached.
        label: the truth; None where the items do not carry it.
        answer_a: the answer of a; None for an invalid one or where the items carry none.
        answer_b: the answer of b.
        task: what the item asks, where that is known.
    """

    id: str
    cluster: str
    value_a: float
    value_b: float
    label: str | None
    answer_a: str | None
    answer_b: str | None
    task: str = ""


def subtract_items(a: Items, b: Items) -> Floats:
    """Return ``b`` minus ``a`` item by item, (N,) in [-1, 1]; differences of rounding are none.

    Raises:
        EvaluationError: if the two are of another measure or split, or have other items or the
            same items with other labels or clusters.
    """
    if (a.measure, a.split) != (b.measure, b.split):
        raise EvaluationError(
            "unlike things cannot be compared",
            got=f"{a.measure} on {a.split} and {b.measure} on {b.split}",
            expected="one measure on one split",
        )
    both_labels = bool(a.labels and b.labels)
    if (a.ids, a.clusters) != (b.ids, b.clusters) or (both_labels and a.labels != b.labels):
        raise EvaluationError(
            f"{a.policy} and {b.policy} did not answer the same items of {a.split}",
            got=f"{len(a.ids)} and {len(b.ids)} items, {len({*a.ids} & {*b.ids})} in common",
            expected="the same ids, labels and clusters",
            fix="predict with both on the same items first",
        )
    gains = b.values - a.values
    return np.where(np.abs(gains) < _TIE, 0.0, gains)


def list_discordant(a: Items, b: Items) -> tuple[DiscordantItem, ...]:
    """Return the items on which ``a`` and ``b`` differ, by id.

    Raises:
        EvaluationError: as ``subtract_items``.
    """
    return tuple(
        DiscordantItem(
            id=a.ids[n],
            cluster=a.clusters[n],
            value_a=float(a.values[n]),
            value_b=float(b.values[n]),
            label=a.labels[n] if a.labels else None,
            answer_a=a.answers[n] if a.answers else None,
            answer_b=b.answers[n] if b.answers else None,
        )
        for n in np.flatnonzero(subtract_items(a, b))
    )


def count_same_answers(a: Items, b: Items) -> int:
    """Return how many answers are alike; how many values, where the items carry no answers."""
    if not (a.answers and b.answers):
        return int((subtract_items(a, b) == 0).sum())
    return sum(one == two for one, two in zip(a.answers, b.answers, strict=True))
