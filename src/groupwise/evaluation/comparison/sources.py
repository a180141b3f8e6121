"""Run folders as systems and cells: what a comparison of runs is built from.

Which folders there are is told by the caller (two runs, or the cells of a sweep); a cell that has
not run has no numbers, and nothing is made up for it.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import numpy as np

from groupwise.core import EvaluationError, check_records
from groupwise.evaluation.comparison.material import (
    Answers,
    Coordinates,
    Gate,
    GridAxis,
    GridCell,
    Material,
    State,
    System,
)
from groupwise.evaluation.comparison.sides import (
    arrange_audits,
    arrange_configuration,
    arrange_data,
    merge_verdicts,
)
from groupwise.evaluation.comparison.training import draw_curves, list_epochs, read_logs
from groupwise.evaluation.conditions import read_measures
from groupwise.evaluation.facts import RunFacts, read_facts
from groupwise.evaluation.fairness import check_fairness
from groupwise.evaluation.looks import state_most_looks
from groupwise.evaluation.metrics import read_items
from groupwise.evaluation.monitor import History
from groupwise.evaluation.page import Statement
from groupwise.evaluation.policies import Policies, read_policies
from groupwise.evaluation.predictions import (
    Items,
    Measure,
    Prediction,
    find_measure,
    read_predictions,
)
from groupwise.evaluation.report.content import MAIN_SPLIT
from groupwise.evaluation.report.sections import Section, read_sections
from groupwise.evaluation.statistics import clustered_ratio

_PREDICTIONS = Path("evaluate") / "predictions.jsonl"
_SECTIONS = Path("evaluate") / "sections.json"
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
        chosen: keys of the config of which a sweep chooses the values; not its seeds.
    """

    measure: str = "accuracy"
    split: str = "test"
    factors: tuple[str, ...] = ()
    title: str = ""
    system_axis: str = ""
    chosen: tuple[str, ...] = ()


def read_sources(
    sources: Sequence[Source], axes: Sequence[GridAxis], question: Question
) -> Material:
    """Read what a comparison of runs is built from.

    Raises:
        EvaluationError: if a finished run cannot be read, or runs have no policy, split or measure
            in common.
        DataError: if a file of predictions or metrics is damaged.
        RunError: if a file is not what its step wrote.
    """
    done = [one for one in sources if one.state == "done"]
    for one in done:
        check_records(one.folder)
    rows = {one.key: read_predictions(one.folder / _PREDICTIONS) for one in done}
    policies = {one.key: read_policies(one.folder) for one in done}
    left = [one.key for one in done if one.policy is None]
    last = choose_policy([rows[key] for key in left], policies[left[0]]) if left else ""
    # Under its system's name, so that cells can be merged.
    facts = {
        one.key: replace(
            read_facts(one.folder, policy=one.policy or last, predictions=rows[one.key]),
            name=one.system,
        )
        for one in done
    }
    defined = define_measure(question.measure, [one.folder for one in done])
    measure = defined or Measure(question.measure, question.measure, question.measure)
    answers = {
        key: _read_answers(rows[key], one, measure, question.split, policies[key])
        for key, one in facts.items()
        if measure.name not in policies[key].find(one.policy).inapplicable
    }
    names = tuple(dict.fromkeys(one.system for one in sources))
    folders = {name: [one.folder for one in done if one.system == name] for name in names}
    gate = _judge(names, facts, question, has_axes=bool(axes))
    logs = _read_logs(facts)
    cells = tuple(
        _fill_cell(one, answers) for one in sorted(sources, key=lambda one: names.index(one.system))
    )
    return Material(
        title=question.title,
        measure=measure,
        split=question.split,
        system_axis=question.system_axis,
        systems=tuple(_describe(name, sources, facts) for name in names),
        axes=tuple(axes),
        cells=cells,
        is_direction_known=defined is not None,
        num_trainings=_count_trainings(facts),
        answers=answers,
        gate=gate,
        looks=(
            *state_choice(question, measure, rows.values()),
            *state_most_looks((Path(one.folder), one.digest) for one in cells if one.digest),
        ),
        configuration=arrange_configuration(names, facts, gate),
        data=(*arrange_data(names, facts, gate), *arrange_audits(folders)),
        curves=draw_curves(logs),
        epochs=list_epochs(logs),
        sections={} if axes else dict(_read_sections(done)),
    )


def _read_sections(done: Iterable[Source]) -> Iterator[tuple[str, tuple[Section, ...]]]:
    for one in done:
        path = one.folder / _SECTIONS
        if path.is_file() and (found := read_sections(path)):
            yield one.system, found


def define_measure(name: str, folders: Iterable[Path]) -> Measure | None:
    """Return the measure as Groupwise or the runs define it, None where nobody does.

    Raises:
        EvaluationError: if more is better in one run and less in another.
    """
    found = [find_measure(name, read_measures(folder)) for folder in folders]
    known = [one for one in found if one is not None]
    if len({one.is_higher_better for one in known}) > 1:
        raise EvaluationError(
            f"more {name} is better in one run and less in another",
            fix="evaluate all runs again with one version",
        )
    return known[0] if known else None


def state_choice(
    question: Question, measure: Measure, runs: Collection[Sequence[Prediction]]
) -> Iterator[Statement]:
    """Say on which split a sweep's settings are chosen; of the test split, what to do instead.

    Args:
        question: names the settings and the split.
        measure: by which they are chosen.
        runs: the predictions of each.
    """
    if not question.chosen:
        return
    values = {"keys": question.chosen, "measure": measure, "split": question.split}
    if question.split != MAIN_SPLIT:
        yield Statement("notice.chosen_on", values)
        return
    known = {row.split for found in runs for row in found}
    others = sorted(
        name
        for name in known - {MAIN_SPLIT}
        if all(any(row.split == name for row in found) for found in runs)
    )
    instead = Statement("notice.choose_elsewhere", {"command": "groupwise evaluate RUN ROWS"})
    if others:
        instead = Statement("notice.choose_by", {"metric": f"--metric {others[-1]}/{measure.name}"})
    yield Statement("notice.chosen_on_test", values | {"instead": instead}, "warning")


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
    sets = [dict.fromkeys(row.policy for row in rows) for rows in runs]
    shared = [name for name in sets[0] if all(name in names for names in sets)]
    if not shared:
        have = sorted({name for names in sets for name in names})
        raise EvaluationError(
            "the runs have no policy in common", got=have, fix="name one each, as RUN:POLICY"
        )
    return policies.choose_last(shared)


def _read_answers(
    rows: Sequence[Prediction], run: RunFacts, measure: Measure, split: str, policies: Policies
) -> Answers:
    here = [row for row in rows if row.split == split]
    items = read_items(here or rows, policy=run.policy, split=split, measure=measure.name)
    known = _measure_baselines(here, items, policies)
    best = max(known, key=lambda value: measure.sign * value, default=None)
    return Answers(items, run.answers[split], best)


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


def _read_logs(facts: Mapping[Key, RunFacts]) -> dict[str, dict[str, list[History]]]:
    """Return the logs of the steps behind each policy, by step and system."""
    found: dict[str, dict[str, list[History]]] = {}
    for (system, _), run in facts.items():
        for step, log in read_logs(run.folder, run.scope.steps).items():
            found.setdefault(step, {}).setdefault(system, []).append(log)
    return found


def _describe(name: str, sources: Iterable[Source], facts: Mapping[Key, RunFacts]) -> System:
    mine = [one for one in sources if one.system == name]
    policies = {facts[one.key].policy for one in mine if one.key in facts}
    return System(name, " / ".join(sorted(policies)), tuple(str(one.folder) for one in mine))


def _fill_cell(source: Source, answers: Mapping[Key, Answers]) -> GridCell:
    found = answers.get(source.key)
    folder = str(source.folder)
    if found is None:
        state = "inapplicable" if source.state == "done" else source.state
        return GridCell(source.system, source.coordinates, state, folder=folder, error=source.error)
    items = found.items
    # A single cluster says nothing about others.
    ends = clustered_ratio(items.values, np.ones(len(items.ids)), items.clusters)
    low, high = ends or (0.0, 1.0)
    return GridCell(
        system=source.system,
        coordinates=source.coordinates,
        state="done",
        value=items.value,
        low=low,
        high=high,
        n=len(items.ids),
        num_clusters=len(set(items.clusters)),
        digest=items.split_digest,
        invalid_rate=fmean(row.predicted is None for row in found.predictions.values()),
        folder=folder,
    )
