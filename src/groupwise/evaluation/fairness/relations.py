"""How the item sets of runs relate: exact, nested, overlapping or disjoint, and their labels."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

from groupwise.core import EvaluationError, digest_json
from groupwise.evaluation.fairness.facts import RunFacts

RelationKind = Literal["exact", "nested", "overlapping", "disjoint"]


@dataclass(frozen=True, slots=True)
class ItemRelation:
    """How the items of two runs relate, and how alike their answers to the shared ones are.

    Attributes:
        a: name of one run.
        b: name of the other.
        split: name of the split.
        kind: ``exact``: the same ids; ``nested``: one set lies in the other; ``overlapping``;
            ``disjoint``.
        num_a: items of a.
        num_b: items of b.
        num_shared: items of both.
        num_relabelled: shared items whose labels differ.
        num_same_text: shared items with the same text.
        num_same_answer: shared items with the same label given (or both invalid).
    """

    a: str
    b: str
    split: str
    kind: RelationKind
    num_a: int
    num_b: int
    num_shared: int
    num_relabelled: int
    num_same_text: int
    num_same_answer: int

    @property
    def is_same(self) -> bool:
        """Whether both answered the same items with the same labels."""
        return self.kind == "exact" and not self.num_relabelled

    def describe(self) -> str:
        """Return kind and counts in a few words."""
        return f"{self.kind}: {self.num_a} and {self.num_b} items, {self.num_shared} shared"


def relate_items(runs: Sequence[RunFacts], *, split: str) -> tuple[ItemRelation, ...]:
    """Return the relation of every two runs, in the order of the runs.

    Raises:
        EvaluationError: if a run has no items in this split.
    """
    for run in runs:
        if not run.item_ids.get(split):
            raise EvaluationError(
                f"{run.name} has no items in the split {split!r}",
                expected=f"one of {', '.join(sorted(run.item_ids)) or 'none'}",
            )
    return tuple(_relate(a, b, split) for a, b in combinations(runs, 2))


def describe_items(run: RunFacts, split: str) -> dict[str, Any]:
    """Return number and digest of a run's items; the digest is that of its metrics."""
    ids = sorted(run.item_ids[split])
    answers = run.answers.get(split, {})
    pairs = [[i, answers[i].label] if i in answers else [i] for i in ids]
    return {"n": len(ids), "split_digest": digest_json(pairs)}


def find_relabelled(a: RunFacts, b: RunFacts, split: str) -> list[str]:
    """Return the shared items whose labels differ, sorted."""
    of_a, of_b = a.answers.get(split, {}), b.answers.get(split, {})
    return sorted(i for i in of_a.keys() & of_b.keys() if of_a[i].label != of_b[i].label)


def _relate(a: RunFacts, b: RunFacts, split: str) -> ItemRelation:
    ids_a, ids_b = a.item_ids[split], b.item_ids[split]
    of_a, of_b = a.answers.get(split, {}), b.answers.get(split, {})
    both = [(of_a[i], of_b[i]) for i in of_a.keys() & of_b.keys()]
    return ItemRelation(
        a=a.name,
        b=b.name,
        split=split,
        kind=_name_kind(ids_a, ids_b),
        num_a=len(ids_a),
        num_b=len(ids_b),
        num_shared=len(ids_a & ids_b),
        num_relabelled=sum(one.label != two.label for one, two in both),
        num_same_text=sum(one.text == two.text for one, two in both),
        num_same_answer=sum(one.predicted == two.predicted for one, two in both),
    )


def _name_kind(a: frozenset[str], b: frozenset[str]) -> RelationKind:
    if a == b:
        return "exact"
    if a <= b or b <= a:
        return "nested"
    return "overlapping" if a & b else "disjoint"
