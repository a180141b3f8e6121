"""Whom to ask first: answers that nobody spoke of, in the order of what their labels are worth.

The value of a label is the probability that the answer is a mistake, over the square root of the
labels that its cluster has already: as a mean's standard error falls, further labels of one place
tell less. The answers asked before it count as labelled, so that the order is the same whether
people are asked one by one or by a list.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from math import sqrt
from typing import Literal

from groupwise.core import derive_seed
from groupwise.feedback.items import Shown

QueueOrder = Literal["value", "random", "oldest"]
"""``value``, and its rivals: ``random`` by a seed, and ``oldest`` first."""


def order_for_people(
    waiting: Iterable[Shown],
    labelled: Iterable[Shown] = (),
    *,
    order: QueueOrder = "value",
    looks: Mapping[str, str] | None = None,
    seed: int = 0,
) -> list[Shown]:
    """Return answers in the order in which people are to be asked; ties go by age, then by id.

    Args:
        waiting: answers that nobody spoke of.
        labelled: those that people spoke of.
        order: which one; the others exist to be compared with ``value``.
        looks: of pictures by name, from ``describe_look``; answers without a session are of one
            cluster if their first pictures look alike.
        seed: of the random order; where an answer stands does not depend on which others wait.
    """
    if order == "random":
        return sorted(waiting, key=lambda one: (derive_seed(seed, one.id), one.id))
    oldest = sorted(waiting, key=lambda one: (one.at_s, one.id))
    if order == "oldest":
        return oldest
    doubts = {one.id: rate_doubt(one) for one in oldest}
    clusters: defaultdict[tuple[str, str], list[Shown]] = defaultdict(list)
    for one in sorted(oldest, key=lambda one: -doubts[one.id]):
        clusters[_name_cluster(one, looks or {})].append(one)
    known = Counter(_name_cluster(one, looks or {}) for one in labelled)
    values = {
        one.id: doubts[one.id] / sqrt(1 + known[cluster] + place)
        for cluster, members in clusters.items()
        for place, one in enumerate(members)
    }
    return sorted(oldest, key=lambda one: -values[one.id])


def rate_doubt(shown: Shown) -> float:
    """Return how probably an answer is a mistake, in [0, 1].

    That is one minus its confidence, or 1 where there is none, or no answer. That a judge gives it
    no right is a second reason, taken as independent of the first.
    """
    sure = None if shown.prediction is None else shown.confidence
    return 1 - (sure or 0.0) * _find_support(shown)


def _find_support(shown: Shown) -> float:
    """Return how probably a judge gives an answer right, in [0, 1]; 1 where none was asked."""
    if shown.judge_label is None or shown.judge_probability is None:
        return 1.0
    agrees = shown.judge_label == shown.prediction
    return shown.judge_probability if agrees else 1 - shown.judge_probability


def _name_cluster(shown: Shown, looks: Mapping[str, str]) -> tuple[str, str]:
    """Return what an answer shares with those that a label of it also tells of."""
    if shown.session:
        return "session", shown.session
    look = looks.get(shown.pictures[0]) if shown.pictures else None
    return ("item", shown.id) if look is None else ("look", look)
