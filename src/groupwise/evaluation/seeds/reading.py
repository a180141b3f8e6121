"""Runs that repeat a method with other seeds: read, and refused where they differ in more."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from groupwise.core import EvaluationError, check_records
from groupwise.evaluation.comparison.material import Gate
from groupwise.evaluation.comparison.sides import merge_verdicts
from groupwise.evaluation.comparison.sources import (
    Question,
    choose_policy,
    define_measure,
    state_choice,
)
from groupwise.evaluation.facts import RunFacts, read_facts
from groupwise.evaluation.fairness import Difference, check_fairness, find_differences
from groupwise.evaluation.metrics import list_measures, read_items
from groupwise.evaluation.policies import Policies, read_policies
from groupwise.evaluation.predictions import Items, Measure, Prediction, read_predictions
from groupwise.evaluation.sameness import relate_items
from groupwise.evaluation.seeds.content import Method, MethodMaterial, Repetition

_SEED = "seeds/seed"
_FOLLOWS = (
    *("items", "data", "prompts", "budget", "resolved", "is_nested_subset_of"),
    *("base_weights", "tokenizer"),
)
"""What may differ between runs that differ in the seed: what is drawn by it, small bases, too.

Other data and a base of the user's own are ``inputs``.
"""


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison: the runs of one method.

    Attributes:
        name: what it is called.
        folders: its finished runs.
        policy: whose answers are compared; None: the last that all runs of all sides have.
    """

    name: str
    folders: tuple[Path, ...]
    policy: str | None = None


@dataclass(frozen=True, slots=True)
class _Run:
    folder: Path
    rows: list[Prediction]
    policies: Policies

    def read_facts(self, policy: str) -> RunFacts:
        return read_facts(self.folder, policy=policy, predictions=self.rows)


def read_repetitions(folders: Sequence[Path], question: Question) -> MethodMaterial:
    """Read runs of one recipe as repetitions of every policy that all of them have.

    The last policy that the measure applies to is compared with each other one, run by run.

    Raises:
        EvaluationError: if the runs differ in more than the seed, two have the same one, or they
            have no policy, split or measure in common.
        DataError: if a file is damaged.
    """
    runs = [_read_run(folder) for folder in folders]
    measure = _find_measure(question, folders)
    silent = list(_list_inapplicable(runs, question))
    left = [[row for row in run.rows if row.policy not in silent] for run in runs]
    if not all(left):
        raise EvaluationError(
            f"{question.measure} applies to no policy of these runs",
            got=silent,
            fix="name another measure with --metric",
        )
    last = choose_policy(left, runs[0].policies)
    shared = [n for n in _list_policies(runs, question) if n != last and n not in silent]
    methods = [
        _read_method(name, name, runs, question, measure)
        for name in runs[0].policies.sort([*shared, last])
    ]
    pairs = [(last, name) for name in reversed(shared)]
    return MethodMaterial(
        question.title,
        measure,
        question.split,
        tuple(methods),
        tuple(pairs),
        policies=runs[0].policies,
        inapplicable=tuple(silent),
    )


def read_sides(sides: Sequence[Side], question: Question) -> MethodMaterial:
    """Read the sides of a comparison; each is a method, the first is compared with every other.

    Raises:
        EvaluationError: as ``read_repetitions``, within a side.
        DataError: if a file is damaged.
    """
    runs = {side.name: [_read_run(folder) for folder in side.folders] for side in sides}
    left = [one for side in sides if side.policy is None for one in runs[side.name]]
    last = choose_policy([one.rows for one in left], left[0].policies) if left else ""
    measure = _find_measure(question, [folder for side in sides for folder in side.folders])
    methods = [
        _read_method(side.name, side.policy or last, runs[side.name], question, measure)
        for side in sides
    ]
    names = [one.name for one in methods]
    return MethodMaterial(
        question.title,
        measure,
        question.split,
        tuple(methods),
        tuple((names[0], name) for name in names[1:]),
        gate=_judge(methods, question),
        choice=tuple(state_choice(question, measure, [one.rows for one in chain(*runs.values())])),
    )


def _read_run(folder: Path) -> _Run:
    check_records(folder)
    rows = read_predictions(folder / "evaluate" / "predictions.jsonl")
    return _Run(folder, rows, read_policies(folder))


def _find_measure(question: Question, folders: Iterable[Path]) -> Measure:
    name = question.measure
    return define_measure(name, folders) or Measure(name, name, name)


def _list_inapplicable(runs: Sequence[_Run], question: Question) -> Iterator[str]:
    """Yield the policies that the measure is none of, in the order of reports."""
    for name in runs[0].policies.sort(row.policy for row in runs[0].rows):
        if all(question.measure in run.policies.find(name).inapplicable for run in runs):
            yield name


def _list_policies(runs: Sequence[_Run], question: Question) -> Iterator[str]:
    """Yield the policies whose items every run has measured on the split."""
    for name in runs[0].policies.sort(row.policy for row in runs[0].rows):
        own = [
            [row for row in run.rows if (row.policy, row.split) == (name, question.split)]
            for run in runs
        ]
        if all(rows and question.measure in list_measures(rows) for rows in own):
            yield name


def _read_method(
    name: str, policy: str, runs: Sequence[_Run], question: Question, measure: Measure
) -> Method:
    facts = [run.read_facts(policy) for run in runs]
    seeds = [_read_seed(one) for one in facts]
    _check_seeds(facts, seeds, question.split)
    found = [
        Repetition(seed, run.folder, _read_items(run, policy, question, measure))
        for seed, run in zip(seeds, runs, strict=True)
    ]
    return Method(name, policy, tuple(sorted(found, key=lambda one: one.seed)))


def _read_items(run: _Run, policy: str, question: Question, measure: Measure) -> Items:
    here = [row for row in run.rows if row.split == question.split]
    return read_items(here or run.rows, policy=policy, split=question.split, measure=measure.name)


def _read_seed(run: RunFacts) -> int:
    seed = run.facts.get(_SEED)
    if not isinstance(seed, int):
        raise EvaluationError(f"{run.folder} does not say its seed", fix="run it again")
    return seed


def _check_seeds(runs: Sequence[RunFacts], seeds: Sequence[int], split: str) -> None:
    """Refuse runs that differ in more than the seed, or in nothing."""
    if len(set(seeds)) < len(seeds):
        raise EvaluationError(
            "two of these runs have the same seed",
            got=list(seeds),
            fix="leave one of them out, or name the folder of each run once",
        )
    unlike = find_unlike(runs, split)
    if unlike:
        names = ", ".join(one.name for one in unlike[:3])
        raise EvaluationError(
            "these runs differ in more than the seed",
            got=names + (f" and {len(unlike) - 3} more" if len(unlike) > 3 else ""),
            expected="runs of one recipe and config that differ in the seed only",
            fix="give those of the other method as the other side of `groupwise compare`",
        )


def find_unlike(runs: Sequence[RunFacts], split: str) -> list[Difference]:
    """Return what keeps runs from repeating one method, in which they differ in the seed only.

    What follows from the seed, such as the items that it draws, is not of it where seeds differ.

    Args:
        runs: as they stand behind one policy each.
        split: whose items are held together.
    """
    if len(runs) < 2:
        return []
    found = find_differences(runs, relate_items(runs, split=split), factors=("seed",))
    follows = _FOLLOWS if len({run.facts.get(_SEED) for run in runs}) > 1 else ()
    return [one for one in found if one.kind == "confounding" and one.aspect not in follows]


def _judge(methods: Sequence[Method], question: Question) -> Gate:
    """Hold a run of each side together: of a seed that all have, else of the first of each."""
    shared = [seed for seed in methods[0].seeds if all(seed in one.seeds for one in methods)]
    seed = min(shared, default=None)
    runs: list[RunFacts] = []
    for one in methods:
        folder = next(run.folder for run in one.runs if seed in (None, run.seed))
        runs.append(replace(read_facts(folder, policy=one.policy), name=one.name))
    factors = (*question.factors, *(("seed",) if seed is None else ()))
    verdict = check_fairness(runs, factors=factors, split=question.split)
    return merge_verdicts([one.name for one in methods], [verdict], has_axes=False)
