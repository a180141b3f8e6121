"""Sameness: what should have differed and does not, so nothing was trained or nothing compared."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from pathlib import Path
from typing import Literal

from groupwise.evaluation.fairness.classing import is_named
from groupwise.evaluation.fairness.differences import Difference
from groupwise.evaluation.fairness.facts import RunFacts
from groupwise.evaluation.fairness.relations import ItemRelation
from groupwise.evaluation.fairness.weights import are_same_weights, find_still_weights
from groupwise.evaluation.fairness.wording import Language, write_sentence
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
        message: one sentence.
        runs: names of the runs it is about.
        words: what stands in the sentence's places.
    """

    level: Level
    name: str
    message: str
    runs: tuple[str, ...]
    words: Mapping[str, str]

    def explain(self, language: Language = "en") -> str:
        """Return the sentence in a language."""
        return write_sentence(self.name, self.words, language)


def find_sameness(
    runs: Sequence[RunFacts],
    relations: Sequence[ItemRelation],
    differences: Sequence[Difference],
    *,
    factors: Sequence[str] = (),
) -> tuple[Sameness, ...]:
    """Return all remarks on runs: untrained steps, equal predictions, names that do not vary.

    Raises:
        EvaluationError: if a weight file is damaged.
    """
    remarks = [remark for run in runs for remark in _find_untrained(run)]
    remarks += [
        remark for one in relations for remark in _find_same_answers(one, runs, differences)
    ]
    given = [f"{one.aspect}/{one.key}" for one in differences]
    still = [name for name in factors if not any(is_named(fact, [name]) for fact in given)]
    names = tuple(run.name for run in runs)
    remarks += [_remark("warning", "not_varied", names, {"key": name}) for name in still]
    return tuple(remarks)


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
    name = "same_epochs" if any(word in axis.lower() for word in _EPOCHS) else "same_axis"
    return [
        _remark(
            "warning",
            name,
            (),
            {"key": axis, "cause": ", ".join(group), "count": _count_cells(group, pairs)},
        )
        for group in _join_pairs(list(pairs))
    ]


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
) -> list[Sameness]:
    """Return a remark on two runs that answered all shared items alike."""
    names = (relation.a, relation.b)
    if not relation.num_shared:
        return []
    if not _do_differ(names, differences):
        return _find_identical(relation, runs)
    words = {"runs": " and ".join(names), "count": str(relation.num_shared)}
    if relation.num_same_text == relation.num_shared:
        return [_remark("warning", "same_predictions", names, words)]
    if relation.num_same_answer == relation.num_shared:
        return [_remark("warning", "same_answers", names, words)]
    return []


def _find_identical(relation: ItemRelation, runs: Sequence[RunFacts]) -> list[Sameness]:
    """Return a remark on two runs that differ in nothing, not in a single answer either."""
    if relation.num_same_text < relation.num_shared:
        return []
    names = (relation.a, relation.b)
    by_name = {run.name: _find_weights(run, (run.scope.chain or (None,))[-1]) for run in runs}
    is_same = are_same_weights(*(by_name[name] for name in names))
    kinds = {True: "identical", False: "identical_other_weights", None: "identical_answers"}
    words = {"runs": " and ".join(names), "count": str(relation.num_shared)}
    return [_remark("info", kinds[is_same], names, words)]


def _find_weights(run: RunFacts, policy: RunPolicy | None) -> Path:
    """Return the folder of a policy's weights; one that is not there if the run has none."""
    return run.folder / ((policy and policy.weights) or "no weights")


def _do_differ(names: tuple[str, str], differences: Sequence[Difference]) -> bool:
    """Whether anything that is not harmless differs between these two."""
    absent = object()
    return any(
        one.values.get(names[0], absent) != one.values.get(names[1], absent)
        for one in differences
        if one.kind != "harmless"
    )


def _find_untrained(run: RunFacts) -> list[Sameness]:
    remarks: list[Sameness] = []
    name: str | None
    for before, policy in pairwise((None, *run.scope.chain)):
        if policy is None or policy.step is None:
            continue
        name = find_still_weights(_find_weights(run, before), _find_weights(run, policy))
        if run.facts.get(f"trainable/{policy.step}.num_trainable") == 0:
            name = "nothing_trainable"
        if name is not None:
            words = {"key": policy.step, "runs": run.name}
            remarks.append(_remark("error", name, (run.name,), words))
    return remarks


def _remark(
    level: Level,
    name: str,
    runs: tuple[str, ...],
    words: Mapping[str, str],
) -> Sameness:
    return Sameness(level, name, write_sentence(name, words), runs, words)
