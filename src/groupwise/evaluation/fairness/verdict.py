"""The verdict: whether runs differ in nothing but what is compared, and what is too much the same.

What should have differed and does not means that nothing was trained, or nothing compared.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from pathlib import Path
from typing import Literal

from groupwise.core import EvaluationError
from groupwise.evaluation.fairness.classing import find_differences, is_named
from groupwise.evaluation.fairness.facts import RunFacts
from groupwise.evaluation.fairness.finding import Difference, ItemRelation, relate_items
from groupwise.evaluation.fairness.weights import are_same_weights, find_still_weights
from groupwise.evaluation.page.words import Language, explain
from groupwise.evaluation.policies import RunPolicy

Cell = tuple[Mapping[str, str], Hashable]
"""Coordinates by axis, and the digest of the cell's predictions or its value (None: not run)."""
Level = Literal["error", "warning", "info"]
_EPOCHS = ("epoch", "checkpoint")


@dataclass(frozen=True, slots=True)
class Sameness:
    """One thing that is suspiciously the same.

    Attributes:
        level: ``error``: nothing was trained, so the runs cannot be compared; ``warning``: what
            is compared made no difference; ``info``: nothing is compared that could make one.
        name: fixed name of the kind, for programs.
        runs: names of the runs it is about.
        words: what stands in the sentence's places.
    """

    level: Level
    name: str
    runs: tuple[str, ...]
    words: Mapping[str, str]

    def explain(self, language: Language = "en") -> str:
        """Return the sentence in a language."""
        return explain(self.name, self.words, language)


def _find_sameness(
    runs: Sequence[RunFacts],
    relations: Sequence[ItemRelation],
    differences: Sequence[Difference],
    factors: Sequence[str],
) -> Iterator[Sameness]:
    """Yield all remarks on runs: untrained steps, equal predictions, names that do not vary."""
    for run in runs:
        yield from _find_untrained(run)
    for one in relations:
        yield from _find_same_answers(one, runs, differences)
    for name in factors:
        if not any(is_named(one.name, [name]) for one in differences):
            names = tuple(run.name for run in runs)
            yield Sameness("warning", "not_varied", names, {"key": name})


def summarize_same(cells: Sequence[Cell]) -> tuple[Sameness, ...]:
    """Return for each axis which of its values gave the same in all cells that can be paired.

    Two values of an axis are held together in all pairs of cells that share their other
    coordinates and were both run. A single pair of equal numbers may be chance and says nothing;
    a single pair of equal digests (texts) does.

    Args:
        cells: coordinates and result of each cell.
    """
    axes = sorted({axis for coordinates, _ in cells for axis in coordinates})
    return tuple(remark for axis in axes for remark in _find_same_values(axis, cells))


def _find_same_values(axis: str, cells: Sequence[Cell]) -> list[Sameness]:
    by_value: dict[str, dict[Hashable, Hashable]] = {}
    for coordinates, result in cells:
        if result is not None and axis in coordinates:
            rest = tuple(sorted((k, v) for k, v in coordinates.items() if k != axis))
            by_value.setdefault(coordinates[axis], {})[rest] = result
    pairs = {
        (one, two): count
        for one, two in combinations(by_value, 2)
        if (count := _count_same(by_value[one], by_value[two]))
    }
    name = "same_epochs" if has_epochs(axis) else "same_axis"
    return [
        Sameness(
            "warning",
            name,
            (),
            {"key": axis, "cause": ", ".join(group), "count": _count_cells(group, pairs)},
        )
        for group in _join_pairs(list(pairs))
    ]


def has_epochs(axis: str) -> bool:
    """Whether the values of an axis are epochs, by its key."""
    return any(word in axis.lower() for word in _EPOCHS)


def _count_same(one: Mapping[Hashable, Hashable], two: Mapping[Hashable, Hashable]) -> int:
    """Return the number of pairs if all are the same and more than chance, else 0."""
    shared = [(one[rest], two[rest]) for rest in one if rest in two]
    if not shared or any(a != b for a, b in shared):
        return 0
    is_chance = len(shared) == 1 and not isinstance(shared[0][0], str)
    return 0 if is_chance else len(shared)


def _count_cells(group: Sequence[str], pairs: Mapping[tuple[str, str], int]) -> str:
    """Return the number of cells that each value of a group was found the same in."""
    return str(min(count for pair, count in pairs.items() if set(pair) <= set(group)))


def _join_pairs(pairs: Sequence[tuple[str, str]]) -> list[list[str]]:
    """Return groups of values that are joined by pairs, in the order of the pairs."""
    groups: list[list[str]] = []
    for pair in pairs:
        joined = [group for group in groups if set(pair) & set(group)]
        merged = list(dict.fromkeys([value for group in joined for value in group] + list(pair)))
        groups = [*(group for group in groups if group not in joined), merged]
    return groups


def _find_same_answers(
    relation: ItemRelation, runs: Sequence[RunFacts], differences: Sequence[Difference]
) -> Iterator[Sameness]:
    """Yield a remark on two runs that answered all shared items alike.

    Of two that differ in nothing that counts it says whether their weights are the same, too.
    """
    names = (relation.a, relation.b)
    words = {"runs": " and ".join(names), "runs_zh": " 与 ".join(names)}
    words["count"] = str(relation.num_shared)
    has_same_text = relation.num_same_text == relation.num_shared
    absent = object()
    # Of labels a difference names one item, on which these two may agree: their relation knows.
    do_differ = bool(relation.relabelled) or any(
        one.values.get(names[0], absent) != one.values.get(names[1], absent)
        for one in differences
        if one.kind != "harmless" and one.aspect != "labels"
    )
    if not relation.num_shared or relation.num_same_answer < relation.num_shared:
        return
    if do_differ:
        name = "same_predictions" if has_same_text else "same_answers"
        yield Sameness("warning", name, names, words)
    elif has_same_text:
        by_name = {run.name: _find_weights(run, (run.scope.chain or (None,))[-1]) for run in runs}
        is_same = are_same_weights(*(by_name[name] for name in names))
        kinds = {True: "identical", False: "identical_other_weights", None: "identical_answers"}
        yield Sameness("info", kinds[is_same], names, words)


def _find_weights(run: RunFacts, policy: RunPolicy | None) -> Path:
    """Return the folder of a policy's weights; one that is not there if the run has none."""
    return run.folder / ((policy and policy.weights) or "no weights")


def _find_untrained(run: RunFacts) -> Iterator[Sameness]:
    for before, policy in pairwise((None, *run.scope.chain)):
        if policy is None or policy.step is None:
            continue
        name = find_still_weights(_find_weights(run, before), _find_weights(run, policy))
        if run.facts.get(f"trainable/{policy.step}.num_trainable") == 0:
            name = "nothing_trainable"
        if name is not None:
            words = {"key": policy.step, "runs": run.name}
            yield Sameness("error", name, (run.name,), words)


@dataclass(frozen=True, slots=True)
class FairnessVerdict:
    """What must be known before two runs are compared.

    Attributes:
        differences: all of them, the confounding ones first.
        relations: of the items of every two runs.
        remarks: what is suspiciously the same.
        is_fair: whether nothing confounds and every training step of every run trained something.
            If not, nothing is recommended.
    """

    differences: tuple[Difference, ...]
    relations: tuple[ItemRelation, ...]
    remarks: tuple[Sameness, ...]
    is_fair: bool

    @property
    def confounding(self) -> tuple[Difference, ...]:
        """The differences that make the runs unlike."""
        return tuple(one for one in self.differences if one.kind == "confounding")


def check_fairness(
    runs: Sequence[RunFacts], *, factors: Sequence[str] = (), split: str = "test"
) -> FairnessVerdict:
    """Hold runs together: every difference, how their items relate, and what is too much the same.

    Args:
        runs: two or more, with different names.
        factors: what is compared: keys or sections of the config (``grpo.beta``), or aspects
            (``data``, ``policy``); what follows from it is intended, too.
        split: whose items are compared.

    Raises:
        EvaluationError: with fewer than two runs, the same policy of the same folder twice, a run
            without items in the split, a name in ``factors`` that no run has, or damaged weights.
    """
    _check_runs(runs)
    relations = relate_items(runs, split=split)
    differences = find_differences(runs, relations, factors=factors)
    remarks = tuple(_find_sameness(runs, relations, differences, factors))
    is_fair = not any(one.kind == "confounding" for one in differences) and not any(
        remark.level == "error" for remark in remarks
    )
    return FairnessVerdict(differences, relations, remarks, is_fair)


def _check_runs(runs: Sequence[RunFacts]) -> None:
    if len(runs) < 2:
        raise EvaluationError("a comparison needs runs", got=len(runs), expected="two or more")
    seen: dict[tuple[str, str], str] = {}
    for run in runs:
        place = (str(run.folder.resolve()), run.policy)
        if place in seen or run.name in seen.values():
            raise EvaluationError(
                f"{run.name} is given twice",
                expected="different runs, or different policies of a run",
                fix="leave one of them out",
            )
        seen[place] = run.name
