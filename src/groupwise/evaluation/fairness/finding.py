"""Finding what is not the same in all runs: facts, and the items that were answered."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Literal, cast

from groupwise.core import EvaluationError
from groupwise.evaluation.fairness.facts import RunFacts
from groupwise.evaluation.page.words import Language, explain
from groupwise.evaluation.predictions import digest_items

RelationKind = Literal["exact", "nested", "overlapping", "disjoint"]
DifferenceKind = Literal["intended", "harmless", "confounding"]
RECORDED = ("conditions/file", "policies/file")
_RECORDED_BY = {
    **dict.fromkeys(
        (
            *("data", "prompts", "template", "tokenizer", "base_weights", "decoding", "parser"),
            *("normalizer", "metrics", "is_nested_subset_of"),
        ),
        RECORDED[0],
    ),
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
        relabelled: ids of the shared items whose labels differ, ascending.
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
    relabelled: tuple[str, ...]
    num_same_text: int
    num_same_answer: int

    def describe(self) -> str:
        """Return kind and counts in a few words."""
        return f"{self.kind}: {self.num_a} and {self.num_b} items, {self.num_shared} shared"


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not the same in all runs.

    Attributes:
        aspect: what it is about: ``data``, ``config``, ``seeds``, ``packages`` …
        key: what exactly: a key of the config, a file, a package.
        values: by the run's name; a run that has not recorded it is not there.
        lacking: names of the runs that would have recorded it and have not.
        kind: ``intended``: it is compared, or follows from that; ``harmless``: it is on the
            documented list; ``confounding``: everything else.
        reason: fixed name of the sentence that says why, and what to do.
        words: what stands in the sentence's places.
    """

    aspect: str
    key: str
    values: Mapping[str, Any]
    lacking: tuple[str, ...] = ()
    kind: DifferenceKind = "confounding"
    reason: str = "other"
    words: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def name(self) -> str:
        """``aspect/key``, as facts are called."""
        return f"{self.aspect}/{self.key}"

    def explain(self, language: Language = "en") -> str:
        """Return the sentence in a language."""
        return explain(self.reason, self.words, language)


def relate_items(runs: Sequence[RunFacts], *, split: str) -> tuple[ItemRelation, ...]:
    """Return the relation of every two runs, in the order of the runs.

    Raises:
        EvaluationError: if a run has no items in this split.
    """
    for run in runs:
        if not run.answers.get(split):
            raise EvaluationError(
                f"{run.name} has no items in the split {split!r}",
                expected=f"one of {', '.join(sorted(run.answers)) or 'none'}",
            )
    return tuple(_relate(a, b, split) for a, b in combinations(runs, 2))


def _relate(a: RunFacts, b: RunFacts, split: str) -> ItemRelation:
    of_a, of_b = a.answers[split], b.answers[split]
    shared = sorted(of_a.keys() & of_b.keys())
    both = [(of_a[item], of_b[item]) for item in shared]
    kind: RelationKind = "overlapping" if shared else "disjoint"
    if len(shared) == min(len(of_a), len(of_b)):
        kind = "exact" if len(of_a) == len(of_b) else "nested"
    return ItemRelation(
        a=a.name,
        b=b.name,
        split=split,
        kind=kind,
        num_a=len(of_a),
        num_b=len(of_b),
        num_shared=len(shared),
        relabelled=tuple(one.example_id for one, two in both if one.label != two.label),
        num_same_text=sum(one.text == two.text for one, two in both),
        num_same_answer=sum(one.predicted == two.predicted for one, two in both),
    )


def find_unlike_items(
    runs: Sequence[RunFacts], relations: Sequence[ItemRelation]
) -> list[Difference]:
    """Return what differs in the items and in their labels.

    Of items that is their number and the digest that metrics have, of labels the first item that
    is labelled in several ways.
    """
    found: list[Difference] = []
    other = next((one for one in relations if one.kind != "exact"), None)
    if other:
        rows = {run.name: run.answers[other.split].values() for run in runs}
        values = {n: {"n": len(own), "split_digest": digest_items(own)} for n, own in rows.items()}
        found.append(Difference("items", other.split, values))
    unlike = next((one for one in relations if one.relabelled), None)
    if unlike:
        item = unlike.relabelled[0]
        answers = {run.name: run.answers[unlike.split].get(item) for run in runs}
        values = {n: {"item": item, "label": one.label} for n, one in answers.items() if one}
        found.append(Difference("labels", unlike.split, values))
    return found


def find_unlike_facts(runs: Sequence[RunFacts]) -> list[Difference]:
    """Return the facts that differ or that only some runs have recorded, by name.

    What a run would say in one of its files is held together among the runs that have written it;
    that the others have not is one fact of its own.
    """
    found: list[Difference] = []
    facts = {run.name: values for run, values in zip(runs, _fold_sections(runs), strict=True)}
    for name in sorted({*RECORDED, *(name for values in facts.values() for name in values)}):
        is_placed = any(r.scope.steps is not None for r in runs if name in facts[r.name])
        asked = [run for run in runs if _can_have(run, name, is_placed=is_placed)]
        values = {r.name: facts[r.name][name] for r in asked if name in facts[r.name]}
        lacking = tuple(run.name for run in asked if run.name not in values)
        first = next(iter(values.values()), None)
        if lacking or not all(_is_same(first, value) for value in values.values()):
            aspect, _, key = name.partition("/")
            found.append(Difference(aspect, key, values, lacking))
    return found


def _is_same(one: object, two: object) -> bool:
    """Return whether two JSON values are the same; true is not 1, and data is its digest."""
    digests = _find_digest(one), _find_digest(two)
    if None not in digests:
        return digests[0] == digests[1]
    return isinstance(one, bool) == isinstance(two, bool) and one == two


def _find_digest(value: object) -> str | None:
    return cast("dict[str, str]", value).get("digest") if isinstance(value, dict) else None


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
