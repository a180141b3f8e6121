"""Run folders as systems and cells: what a comparison of runs is built from.

Which folders there are is told by the caller (two runs, or the cells of a sweep); a cell that has
not run has no numbers, and nothing is made up for it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from groupwise.core import EvaluationError, derive_seed
from groupwise.evaluation.comparison.audits import arrange_audits
from groupwise.evaluation.comparison.content import GridAxis, GridCell, State, System
from groupwise.evaluation.comparison.gate import (
    arrange_configuration,
    arrange_data,
    merge_verdicts,
)
from groupwise.evaluation.comparison.material import Answers, Gate, Material
from groupwise.evaluation.comparison.training import Log, draw_curves, list_epochs, read_logs
from groupwise.evaluation.comparison.versus import Coordinates
from groupwise.evaluation.fairness import RunFacts, check_fairness, read_facts, read_measures
from groupwise.evaluation.intervals import Interval, bound_mean, widen_interval
from groupwise.evaluation.items import Items
from groupwise.evaluation.measures import Measure, find_measure
from groupwise.evaluation.policies import Policies, read_policies
from groupwise.evaluation.predictions import Prediction, read_predictions
from groupwise.evaluation.scoring import read_items

_PREDICTIONS = Path("evaluate") / "predictions.jsonl"
Key = tuple[str, Coordinates]


@dataclass(frozen=True, slots=True)
class Source:
    """One run of a comparison.

    Attributes:
        system: name of what it is a run of.
        coordinates: its value on every axis of the grid, in their order.
        folder: its run folder, which need not exist before it is done.
        policy: whose answers are compared; None: the last that all runs have.
        state: whether it has run.
        error: how it failed.
    """

    system: str
    coordinates: Coordinates
    folder: Path
    policy: str | None = None
    state: State = "done"
    error: str = ""

    @property
    def key(self) -> Key:
        """System and coordinates: its cell."""
        return self.system, self.coordinates


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of the runs.

    Attributes:
        measure: such as ``accuracy``.
        split: such as ``test``.
        factors: what is compared: keys of the config or aspects of the fairness gate.
        title: of the report.
        system_axis: key whose values are the systems; empty for plain runs.
    """

    measure: str = "accuracy"
    split: str = "test"
    factors: tuple[str, ...] = ()
    title: str = ""
    system_axis: str = ""


def read_sources(
    sources: Sequence[Source], axes: Sequence[GridAxis], question: Question, *, seed: int = 0
) -> Material:
    """Read what a comparison of runs is built from.

    Raises:
        EvaluationError: if a finished run cannot be read, or runs have no policy, split or measure
            in common.
        DataError: if a file of predictions or metrics is damaged.
    """
    done = [one for one in sources if one.state == "done"]
    rows = {one.key: read_predictions(one.folder / _PREDICTIONS) for one in done}
    open_ones = [one for one in done if one.policy is None]
    policy = choose_policy(
        [rows[one.key] for one in open_ones],
        read_policies(open_ones[0].folder) if open_ones else Policies(),
    )
    named = {one.key: one.policy or policy for one in done}
    facts = {one.key: _read_facts(one, named[one.key], rows[one.key]) for one in done}
    defined = _define_measure(question.measure, done)
    measure = defined or Measure(question.measure, question.measure, question.measure)
    answers = {
        one.key: _read_answers(
            rows[one.key], named[one.key], measure, question.split, read_policies(one.folder)
        )
        for one in done
    }
    names = tuple(dict.fromkeys(one.system for one in sources))
    gate = _judge(names, facts, question, has_axes=bool(axes))
    logs = _read_logs(done, facts)
    return Material(
        title=question.title,
        measure=measure,
        split=question.split,
        system_axis=question.system_axis,
        systems=tuple(_describe(name, sources, named) for name in names),
        axes=tuple(axes),
        cells=tuple(
            _fill_cell(one, answers, seed)
            for one in sorted(sources, key=lambda one: names.index(one.system))
        ),
        is_direction_known=defined is not None,
        num_trainings=_count_trainings(facts),
        answers=answers,
        gate=gate,
        configuration=arrange_configuration(names, facts, gate),
        data=(*arrange_data(names, facts, gate), *arrange_audits(_list_folders(names, done))),
        curves=draw_curves(logs),
        epochs=list_epochs(logs),
    )


def _define_measure(name: str, done: Iterable[Source]) -> Measure | None:
    """Return the measure as Groupwise or the runs define it, None where nobody does.

    Raises:
        EvaluationError: if more is better in one run and less in another.
    """
    found = [find_measure(name, read_measures(one.folder)) for one in done]
    known = [one for one in found if one is not None]
    if len({one.is_higher_better for one in known}) > 1:
        raise EvaluationError(
            f"more {name} is better in one run and less in another",
            fix="evaluate all runs again with one version",
        )
    return known[0] if known else None


def _count_trainings(facts: Mapping[Key, RunFacts]) -> int:
    """Return the number of seeds of the system that has fewest; without a record it is one."""
    seeds: dict[str, set[str]] = {}
    for (system, _), one in facts.items():
        seeds.setdefault(system, set()).add(str(one.facts.get("seeds/seed")))
    return min(map(len, seeds.values()), default=1)


def choose_policy(runs: Sequence[Sequence[Prediction]], policies: Policies) -> str:
    """Return the last policy in the order of reports that every run has.

    Args:
        runs: the predictions of each.
        policies: of one of the runs.

    Raises:
        EvaluationError: if the runs have none in common.
    """
    if not runs:
        return ""
    sets = [dict.fromkeys(row.policy for row in rows) for rows in runs]
    shared = [name for name in sets[0] if all(name in names for names in sets)]
    if not shared:
        have = sorted({name for names in sets for name in names})
        raise EvaluationError(
            "the runs have no policy in common", got=have, fix="name one each, as RUN:POLICY"
        )
    return policies.choose_last(shared)


def _read_facts(source: Source, policy: str, rows: Sequence[Prediction]) -> RunFacts:
    """Return the facts of a run under its system's name, so that cells can be merged."""
    found = read_facts(source.folder, policy=policy, predictions=rows)
    return replace(found, name=source.system)


def _read_answers(
    rows: Sequence[Prediction], policy: str, measure: Measure, split: str, policies: Policies
) -> Answers:
    here = [row for row in rows if row.split == split]
    items = read_items(here or rows, policy=policy, split=split, measure=measure.name)
    predictions = {row.example_id: row for row in here if row.policy == policy}
    known = _measure_baselines(here, items, policies)
    best = max(known, key=lambda value: measure.sign * value, default=None)
    return Answers(items, predictions, best)


def _measure_baselines(rows: Sequence[Prediction], items: Items, policies: Policies) -> list[float]:
    """Return what baselines reach on the same items."""
    names = [name for name in {row.policy: 0 for row in rows} if policies.is_baseline(name)]
    found = [] if items.policy in names else [_measure_one(rows, name, items) for name in names]
    if items.measure == "accuracy" and items.labels:
        found.append(Counter(items.labels).most_common(1)[0][1] / len(items.labels))
    return [value for value in found if value is not None]


def _measure_one(rows: Sequence[Prediction], policy: str, items: Items) -> float | None:
    try:
        found = read_items(rows, policy=policy, split=items.split, measure=items.measure)
    except EvaluationError:
        return None
    return found.value if found.ids == items.ids else None


def _judge(
    names: Sequence[str], facts: Mapping[Key, RunFacts], question: Question, *, has_axes: bool
) -> Gate:
    """Hold the systems together in every cell where two or more have run."""
    by_place: dict[Coordinates, list[RunFacts]] = {}
    for (_, place), one in facts.items():
        by_place.setdefault(place, []).append(one)
    verdicts = [
        check_fairness(runs, factors=question.factors, split=question.split)
        for runs in by_place.values()
        if len(runs) > 1
    ]
    return merge_verdicts(names, verdicts, has_axes=has_axes)


def _list_folders(names: Sequence[str], done: Iterable[Source]) -> dict[str, list[Path]]:
    """Return the folders of the finished runs of every system."""
    found: dict[str, list[Path]] = {name: [] for name in names}
    for source in done:
        found[source.system].append(source.folder)
    return found


def _read_logs(
    done: Iterable[Source], facts: Mapping[Key, RunFacts]
) -> dict[str, dict[str, list[Log]]]:
    """Return the logs of the steps behind each policy, by step and system."""
    found: dict[str, dict[str, list[Log]]] = {}
    for source in done:
        steps = facts[source.key].scope.steps
        for step, log in read_logs(source.folder, steps).items():
            found.setdefault(step, {}).setdefault(source.system, []).append(log)
    return found


def _describe(name: str, sources: Iterable[Source], named: Mapping[Key, str]) -> System:
    mine = [one for one in sources if one.system == name]
    policies = {named.get(one.key, "") for one in mine} - {""}
    return System(name, " / ".join(sorted(policies)), tuple(str(one.folder) for one in mine))


def _fill_cell(source: Source, answers: Mapping[Key, Answers], seed: int) -> GridCell:
    found = answers.get(source.key)
    folder = str(source.folder)
    if found is None:
        state = source.state
        return GridCell(source.system, source.coordinates, state, folder=folder, error=source.error)
    low, high = _bound(found.items, seed=seed)
    return GridCell(
        system=source.system,
        coordinates=source.coordinates,
        state="done",
        value=found.items.value,
        low=low,
        high=high,
        n=len(found.items.ids),
        num_clusters=len(set(found.items.clusters)),
        digest=found.items.split_digest,
        invalid_rate=fmean(row.predicted is None for row in found.predictions.values()),
        folder=folder,
    )


def _bound(items: Items, *, seed: int) -> Interval:
    """Return the interval of a mean; a single cluster says nothing about others: [0, 1]."""
    ends = bound_mean(items, seed=derive_seed(seed, "compare", items.split))
    return widen_interval(ends or (0.0, 1.0), items.value)
