"""Finding what is not the same in all runs: facts, and the items that were answered."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal, cast

from groupwise.core import EvaluationError, digest_json
from groupwise.evaluation.fairness.facts import RunFacts

RelationKind = Literal["exact", "nested", "overlapping", "disjoint"]
_OF_CONDITIONS = (
    *("data", "prompts", "template", "tokenizer", "base_weights", "decoding", "parser"),
    *("normalizer", "metrics", "is_nested_subset_of"),
)
RECORDED = ("conditions/file", "policies/file")
_RECORDED_BY = {
    **dict.fromkeys(_OF_CONDITIONS, RECORDED[0]),
    **dict.fromkeys(("budget", "lineage"), RECORDED[1]),
}
_OF_STEPS = ("resolved", "trainable", "judge")


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


@dataclass(frozen=True, slots=True)
class Found:
    """A fact that is not the same in all runs; ``lacking`` are the runs without it."""

    name: str
    values: Mapping[str, Any]
    lacking: tuple[str, ...]

    @property
    def aspect(self) -> str:
        """What it is about."""
        return self.name.partition("/")[0]

    @property
    def key(self) -> str:
        """What exactly."""
        return self.name.partition("/")[2]


def is_same(one: object, two: object) -> bool:
    """Return whether two JSON values are the same; true is not 1, and data is its digest."""
    digests = _find_digest(one), _find_digest(two)
    if None not in digests:
        return digests[0] == digests[1]
    return isinstance(one, bool) == isinstance(two, bool) and one == two


def _find_digest(value: object) -> str | None:
    return cast("dict[str, str]", value).get("digest") if isinstance(value, dict) else None


def find_unlike_facts(runs: Sequence[RunFacts]) -> list[Found]:
    """Return the facts that differ or that only some runs have recorded, by name.

    What a run would say in one of its files is held together among the runs that have written it;
    that the others have not is one fact of its own.
    """
    found: list[Found] = []
    facts = {run.name: values for run, values in zip(runs, _fold_sections(runs), strict=True)}
    for name in sorted({*RECORDED, *(name for values in facts.values() for name in values)}):
        is_placed = any(r.scope.steps is not None for r in runs if name in facts[r.name])
        asked = [run for run in runs if _can_have(run, name, is_placed=is_placed)]
        values = {r.name: facts[r.name][name] for r in asked if name in facts[r.name]}
        lacking = tuple(run.name for run in asked if run.name not in values)
        first = next(iter(values.values()), None)
        if lacking or not all(is_same(first, value) for value in values.values()):
            found.append(Found(name, values, lacking))
    return found


def _can_have(run: RunFacts, name: str, *, is_placed: bool) -> bool:
    """Whether a run without this fact would lack it.

    That a run has not written a file is reported once. Of a run that does not say which steps stand
    behind its policy all steps are there; those that another run knows to be no part of it do not
    count.
    """
    aspect, _, key = name.partition("/")
    if aspect in _OF_STEPS and not is_placed and run.scope.steps is not None:
        return key.partition(".")[0] in run.scope.steps
    if aspect not in _RECORDED_BY or _RECORDED_BY[aspect] in run.facts:
        return True
    return any(fact.startswith(f"{aspect}/") for fact in run.facts)


def _fold_sections(runs: Sequence[RunFacts]) -> list[Mapping[str, Any]]:
    """Return the facts with what some run lacks as a whole as one value.

    That is a section of the config which is null elsewhere, and the resolved values of a step.
    """
    names = {name for run in runs for name in run.facts if name.startswith("config/")}
    whole = {name for name in names if any(other.startswith(f"{name}.") for other in names)}
    steps = [
        {name.partition(".")[0] for name in run.facts if name.startswith("resolved/")}
        for run in runs
    ]
    whole |= set[str]().union(*steps) - steps[0].intersection(*steps)
    return [_fold(run.facts, sorted(whole)) for run in runs] if whole else [r.facts for r in runs]


def _fold(facts: Mapping[str, Any], whole: Sequence[str]) -> dict[str, Any]:
    folded: dict[str, Any] = {}
    for name, value in facts.items():
        section = next((one for one in whole if name.startswith(f"{one}.")), None)
        if section is None:
            folded[name] = value
        else:
            folded.setdefault(section, {})[name.removeprefix(f"{section}.")] = value
    return folded


def find_unlike_items(runs: Sequence[RunFacts], relations: Sequence[ItemRelation]) -> list[Found]:
    """Return what differs in the items and in their labels."""
    found: list[Found] = []
    other = [one for one in relations if one.kind != "exact"]
    if other:
        split = other[0].split
        values = {run.name: describe_items(run, split) for run in runs}
        found.append(Found(f"items/{split}", values, ()))
    relabelled = [one for one in relations if one.num_relabelled]
    if relabelled:
        found.append(_show_relabelled(runs, relabelled[0]))
    return found


def _show_relabelled(runs: Sequence[RunFacts], relation: ItemRelation) -> Found:
    """Return the labels of the first item that is labelled in several ways."""
    by_name = {run.name: run for run in runs}
    split = relation.split
    item = find_relabelled(by_name[relation.a], by_name[relation.b], split)[0]
    having = [run for run in runs if item in run.answers[split]]
    values = {r.name: {"item": item, "label": r.answers[split][item].label} for r in having}
    return Found(f"labels/{split}", values, ())
