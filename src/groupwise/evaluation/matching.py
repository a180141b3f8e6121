"""Matching the items of two policies one to one: differences, equal answers, who differs where.

Statistics of the differences are the job of ``paired``.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from groupwise.core import EvaluationError
from groupwise.evaluation.items import Items

_TIE = 1e-12
Floats = NDArray[np.float64]


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
    """

    id: str
    cluster: str
    value_a: float
    value_b: float
    label: str | None
    answer_a: str | None
    answer_b: str | None


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
