"""One table of results: whatever is measured of runs, seeds and sweeps, as their folders have it.

A row is (system, run, seed, cell, split, item, measure, value). Rows that share all but the item
are one ``Result`` with their values as an array. Beside them stands what the fairness gate says of
the runs, and what they recorded of settings and data.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, Self

import numpy as np

from groupwise.core import EvaluationError, check_records
from groupwise.evaluation.fairness import (
    Difference,
    DifferenceKind,
    RunFacts,
    check_fairness,
    find_differences,
    read_facts,
)
from groupwise.evaluation.metrics import list_measures, read_items
from groupwise.evaluation.predictions import (
    ACCURACY,
    Items,
    Measure,
    Policies,
    Prediction,
    find_measure,
    read_policies,
    read_predictions,
)
from groupwise.evaluation.report.phrases import LANGUAGES, Statement
from groupwise.evaluation.results import read_measures, state_most_looks
from groupwise.evaluation.statistics import clustered_ratio, compare_methods

Coordinates = tuple[str, ...]
_Facts = dict[Coordinates, dict[str, list[RunFacts]]]
State = Literal["done", "failed", "running", "waiting", "inapplicable"]
_SEED = "seeds/seed"
# What may differ between runs that differ in the seed: what is drawn by it, small bases, too.
# Other data and a base of the user's own are ``inputs``.
_FOLLOWS = (
    *("items", "data", "prompts", "budget", "resolved", "is_nested_subset_of"),
    *("base_weights", "tokenizer"),
)
_KINDS = ("confounding", "intended", "harmless", None)
_MAX_TOLD, _MAX_VALUES = 6, 4


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """The rows of one system, run, seed and cell, or what several seeds come to.

    ``value`` is the mean of ``items`` in [0, 1], None unless it is done. ``baseline`` is the best
    value, on the same items, of a policy that does not see the whole task, or of always saying the
    commonest label; ``digest`` is of the items' ids and labels.
    """

    system: str
    cell: Coordinates = ()
    seed: int = 0
    state: State = "done"
    value: float | None = None
    low: float | None = None  # the 95 % interval of a summary
    high: float | None = None
    n: int | None = None  # of several seeds that with fewest, as the clusters
    num_clusters: int | None = None
    digest: str = ""
    items: Items | None = None
    answers: Mapping[str, Prediction] = field(default_factory=dict[str, Prediction])  # by item
    baseline: float | None = None
    policy: str = ""
    folder: str = ""
    error: str = ""
    invalid_rate: float | None = None
    seeds: tuple[tuple[int, float], ...] = ()  # with their values
    limit: str = ""  # why several have no interval, as of ``MethodDifference``

    def fill(self, items: Items) -> Self:
        """Return the result that items come to."""
        known = {"n": len(items.ids), "num_clusters": len(set(items.clusters)), "items": items}
        return replace(self, value=items.value, digest=items.split_digest, **known)


@dataclass(frozen=True, slots=True)
class SideRow:
    """A setting or data: a text per system, None where it was not recorded.

    ``kind`` is how the fairness gate classes the difference, None where there is none, and ``why``
    its sentence by language.
    """

    aspect: str
    key: str
    values: tuple[str | None, ...]
    kind: DifferenceKind | None = None
    why: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, eq=False, kw_only=True)
class ResultTable:
    """The results of one measure on one split, and what stands beside them in a report."""

    results: tuple[Result, ...]
    axes: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    title: str = ""
    measure: Measure = ACCURACY
    split: str = "test"
    system_axis: str = ""  # key whose values are the systems; empty for runs
    policies: Policies = field(default_factory=Policies)  # where systems are those of the same runs
    is_fair: bool | None = True  # whether nothing differs but what is compared; None: not asked
    sides: tuple[SideRow, ...] = ()  # settings and data, those that differ first
    notices: tuple[Statement, ...] = ()  # what is to be known of the sources

    @cached_property
    def _by_place(self) -> dict[tuple[str, Coordinates], list[Result]]:
        found: dict[tuple[str, Coordinates], list[Result]] = {}
        for one in sorted(self.results, key=lambda one: one.seed):
            found.setdefault((one.system, one.cell), []).append(one)
        return found

    @cached_property
    def systems(self) -> tuple[str, ...]:
        """Names of the systems, in their order."""
        return tuple(dict.fromkeys(one.system for one in self.results))

    @cached_property
    def cells(self) -> tuple[Coordinates, ...]:
        """Places of the grid, in their order; one empty place without axes."""
        return tuple(dict.fromkeys(one.cell for one in self.results))

    @cached_property
    def is_of_methods(self) -> bool:
        """Whether a system has several seeds in a cell."""
        return any(len(found) > 1 for found in self._by_place.values())

    @property
    def num_missing(self) -> int:
        """How many results have not run, or failed."""
        return sum(one.value is None and one.state != "inapplicable" for one in self.results)

    def select(self, system: str, cell: Coordinates = ()) -> list[Result]:
        """Return the results of a system in a cell that have run, by seed."""
        found = self._by_place.get((system, cell), [])
        return [one for one in found if one.value is not None]

    def summarize(self, system: str, cell: Coordinates = ()) -> Result:
        """Return what the seeds of a system come to in a cell, without items.

        The 95 % interval of one seed draws clusters of items, that of three or more seeds and
        clusters.
        """
        done = self.select(system, cell)
        if not done:
            return self._by_place.get((system, cell), [Result(system, cell, state="waiting")])[0]
        low, high, limit = None, None, ""
        items = [one.items for one in done if one.items is not None]
        if items[1:]:  # The mean is a difference to always having 0.
            zeros = [replace(one, values=np.zeros_like(one.values)) for one in items]
            found = compare_methods(zeros, items, is_paired=True)
            limit = found.limit
            if found.low is not None and found.high is not None:
                low, high = max(0.0, found.low), min(1.0, found.high)
        elif items:  # A single cluster says nothing about others.
            ones = np.ones(len(items[0].ids))
            low, high = clustered_ratio(items[0].values, ones, items[0].clusters) or (0.0, 1.0)
        answers = [one.answers.values() for one in done if one.answers]
        rates = [fmean(row.predicted is None for row in rows) for rows in answers]
        return replace(
            done[0],
            value=fmean(one.value or 0.0 for one in done),
            low=low,
            high=high,
            n=min((one.n for one in done if one.n), default=None),
            num_clusters=min((one.num_clusters for one in done if one.num_clusters), default=None),
            digest=" ".join(sorted({one.digest for one in done})),
            items=None,
            answers={},
            invalid_rate=fmean(rates) if rates else None,
            seeds=tuple((one.seed, one.value or 0.0) for one in done),
            limit=limit,
        )


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of runs."""

    measure: str = "accuracy"
    split: str = "test"
    factors: tuple[str, ...] = ()  # what is compared: keys of the config, aspects of the gate
    title: str = ""  # of the report
    system_axis: str = ""  # key whose values are the systems; empty for runs
    chosen: tuple[str, ...] = ()  # keys of which a sweep chooses the values; not its seeds


def read_runs(
    runs: Sequence[Result], question: Question, axes: Mapping[str, tuple[str, ...]] | None = None
) -> ResultTable:
    """Read runs as systems and cells; several runs of a system in a cell are its seeds.

    A result says in which folder a run that is done stands, and whose answers count as its policy;
    without one it is the last that all such runs have.

    Raises:
        EvaluationError: if a run cannot be read, runs have no policy, split or measure in common,
            or those of one system and cell differ in more than the seed, or in nothing.
        DataError: if a file is damaged.
        RunError: if a file is not what its step wrote.
    """
    done = [one for one in runs if one.state == "done"]
    answers = _read_answers(one.folder for one in done)
    if left := [one.folder for one in done if not one.policy]:
        last = _choose_policy([answers[x] for x in left], read_policies(Path(left[0])))
        runs = [replace(one, policy=one.policy or last) for one in runs]
    table, facts = _tabulate(runs, question, answers)
    differences, remarks, is_fair = list[Difference](), dict[str, Statement](), True
    for by_system in (here for here in facts.values() if len(here) > 1):
        # Of several seeds one run of each system is held: of a seed that all have, else the first.
        seeds = [{run.facts.get(_SEED) for run in own} - {None} for own in by_system.values()]
        seed = min(set.intersection(*seeds), default=None)
        chosen = [
            replace(next(r for r in own if seed in (None, r.facts.get(_SEED))), name=name)
            for name, own in by_system.items()
        ]
        is_apart = seed is None and any(own[1:] for own in by_system.values())
        factors = (*question.factors, *(["seed"] if is_apart else []))
        verdict = check_fairness(chosen, factors=factors, split=question.split)
        is_fair = is_fair and verdict.is_fair
        differences += verdict.differences
        for one in verdict.remarks:  # In a grid what is too much the same is told by axis.
            if not axes or one.level == "error" or one.values["reason"] == "not_varied":
                remarks[one.values["why"]["en"]] = one
    systems = [[r.facts for cell in facts.values() for r in cell.get(x, ())] for x in table.systems]
    names = {fact for runs in systems for run in runs for fact in run} - {"conditions/file"}
    known = {x: [[run[x] for run in runs if x in run] for runs in systems] for x in names}
    unlike: dict[str, tuple[DifferenceKind, Mapping[str, str]]] = {}
    for fact in dict.fromkeys(one.name for one in differences):
        group = [one for one in differences if one.name == fact]
        known[fact] = [[x.values[y] for x in group if y in x.values] for y in table.systems]
        worst = min(group, key=lambda one: _KINDS.index(one.kind))  # of several cells
        unlike[fact] = worst.kind, {language: worst.explain(language) for language in LANGUAGES}
    sides = arrange_sides(known, unlike)
    notices = [*tell_rows(sides), *remarks.values(), *table.notices]
    return replace(table, axes=axes or {}, is_fair=is_fair, sides=sides, notices=tuple(notices))


def read_policies_of_runs(folders: Sequence[Path], question: Question) -> ResultTable:
    """Read runs of one recipe as seeds of every policy they share; errors are as ``read_runs``."""
    answers, measure = _read_answers(map(str, folders)), question.measure
    policies = [read_policies(folder) for folder in folders]
    names = policies[0].sort(row.policy for row in answers[str(folders[0])])
    silent = [x for x in names if all(measure in own.find(x).inapplicable for own in policies)]
    left = [[row for row in rows if row.policy not in silent] for rows in answers.values()]
    if not all(left):
        fix = "name another measure with --metric"
        raise EvaluationError(f"{measure} applies to no policy of these runs", got=silent, fix=fix)
    kept = {_choose_policy(left, policies[0]), *silent}
    for name in {*names} - kept:
        own = [[r for r in x if (r.policy, r.split) == (name, question.split)] for x in left]
        kept |= {name} if all(x and measure in list_measures(x) for x in own) else set()
    runs = [Result(x, policy=x, folder=str(one)) for x in names if x in kept for one in folders]
    table, _ = _tabulate(runs, question, answers)
    return replace(table, policies=policies[0], is_fair=None)


def _read_answers(folders: Iterable[str]) -> dict[str, list[Prediction]]:
    found: dict[str, list[Prediction]] = {}
    for folder in dict.fromkeys(folders):
        check_records(Path(folder))
        found[folder] = read_predictions(Path(folder, "evaluate/predictions.jsonl"))
    return found


def _choose_policy(runs: Sequence[Sequence[Prediction]], policies: Policies) -> str:
    """Return the last policy in the order of reports that every run has."""
    sets = [dict.fromkeys(row.policy for row in rows) for rows in runs]
    shared = [name for name in sets[0] if all(name in names for names in sets)]
    if not shared:
        have = sorted({name for names in sets for name in names})
        fix = "name one each, as RUN:POLICY"
        raise EvaluationError("the runs have no policy in common", got=have, fix=fix)
    return policies.choose_last(shared)


def _tabulate(
    runs: Sequence[Result], question: Question, answers: Mapping[str, list[Prediction]]
) -> tuple[ResultTable, _Facts]:
    """Return a table of what runs measured, and the facts behind it by cell and system."""
    name, split = question.measure, question.split
    known = [x for place in answers if (x := find_measure(name, read_measures(Path(place))))]
    if len({one.is_higher_better for one in known}) > 1:
        what = f"more {name} is better in one run and less in another"
        raise EvaluationError(what, fix="evaluate all runs again with one version")
    measure, notices = known[0] if known else Measure(name, name, name), list[Statement]()
    if question.chosen and split == "test":
        told = {"keys": question.chosen, "measure": measure}
        notices.append(Statement("notice.chosen_on_test", told, "warning"))
    if not known:
        notices.append(Statement("notice.direction", {"measure": measure}, "warning"))
    facts: _Facts = {}
    results: list[Result] = []
    for one in runs:
        if one.state != "done":
            results.append(one)
            continue
        rows, policies = answers[one.folder], read_policies(Path(one.folder))
        found = read_facts(Path(one.folder), policy=one.policy, predictions=rows)
        facts.setdefault(one.cell, {}).setdefault(one.system, []).append(found)
        one = replace(one, seed=found.facts.get(_SEED, 0))
        if name in policies.find(one.policy).inapplicable:
            results.append(replace(one, state="inapplicable"))
            continue
        here = [row for row in rows if row.split == split] or rows
        items = read_items(here, policy=one.policy, split=split, measure=name)
        blind = {row.policy for row in here if policies.is_baseline(row.policy)}
        values: list[float] = []
        for other in () if one.policy in blind else blind:
            with suppress(EvaluationError):  # The measure is none of this baseline's.
                theirs = read_items(here, policy=other, split=split, measure=name)
                values += [theirs.value] if theirs.ids == items.ids else []
        if name == "accuracy" and items.labels:
            values.append(Counter(items.labels).most_common(1)[0][1] / len(items.labels))
        baseline = max(values, key=lambda value: measure.sign * value, default=None)
        one = replace(one, answers=found.answers[split], baseline=baseline)
        results.append(one.fill(items))
    for group in (own for here in facts.values() for own in here.values() if own[1:]):
        seeds = [one.facts.get(_SEED) for one in group]
        if len(set(seeds)) < len(seeds) or None in seeds:
            what = "two of these runs have the same seed, or one does not say its own"
            fix = "leave one of them out, or name the folder of each run once"
            raise EvaluationError(what, got=seeds, fix=fix)
        if unlike := [one.name for one in find_unlike(group, split)]:
            raise EvaluationError(
                "these runs differ in more than the seed",
                got=", ".join(unlike[:3]) + (f" and {len(unlike) - 3} more" if unlike[3:] else ""),
                expected="runs of one recipe and config that differ in the seed only",
                fix="give those of the other method as the other side of `groupwise compare`",
            )
    notices += state_most_looks((Path(one.folder), one.digest) for one in results if one.digest)
    table = ResultTable(results=tuple(results), measure=measure, split=split, title=question.title)
    return replace(table, system_axis=question.system_axis, notices=tuple(notices)), facts


def find_unlike(runs: Sequence[RunFacts], split: str) -> list[Difference]:
    """Return what keeps runs from repeating one method, in which they differ in the seed only.

    What follows from the seed, such as the items that it draws, is not of it where seeds differ.
    Runs stand behind one policy each.
    """
    found = find_differences(runs, factors=("seed",), split=split)
    follows = _FOLLOWS if len({run.facts.get(_SEED) for run in runs}) > 1 else ()
    return [one for one in found if one.kind == "confounding" and one.aspect not in follows]


def arrange_sides(
    known: Mapping[str, Sequence[Iterable[Any]]],
    unlike: Mapping[str, tuple[DifferenceKind, Mapping[str, str]]],
) -> tuple[SideRow, ...]:
    """Return settings and data side by side, those that differ first.

    ``known`` has the values of each system by ``aspect/key``, ``unlike`` the class of what differs
    and why. Data comes first: training on other data is the commonest way to fool oneself.
    """
    places = {"data": 0, "items": 1, "config": 2}
    rows: list[SideRow] = []
    for fact, values in known.items():
        (aspect, _, key), (kind, why) = fact.partition("/"), unlike.get(fact, (None, {}))
        rows.append(SideRow(aspect, key, tuple(map(_join, values)), kind, why))
    rows.sort(key=lambda x: (_KINDS.index(x.kind), places.get(x.aspect, 3), x.aspect, x.key))
    return tuple(rows)


def tell_rows(rows: Sequence[SideRow]) -> Iterator[Statement]:
    """Yield a notice per confounding difference; of more than six the rest is a list."""
    unlike = [row for row in rows if row.kind == "confounding"]
    for row in unlike[:_MAX_TOLD]:
        kind = "notice.confounding" if any(row.values) else "notice.gate"
        values = {"aspect": row.aspect, "key": row.key, "sides": row.values, "why": row.why}
        yield Statement(kind, values, "error")
    if rest := [f"{row.aspect}/{row.key}" for row in unlike[_MAX_TOLD:]]:
        yield Statement("notice.more_unlike", {"num": len(rest), "keys": rest}, "error")


def _join(values: Iterable[Any]) -> str | None:
    """Return all different values as one text; None of none."""
    shown = list(dict.fromkeys(map(_show_value, values)))
    more = " …" if len(shown) > _MAX_VALUES else ""
    return " / ".join(shown[:_MAX_VALUES]) + more if shown else None


def _show_value(value: Any) -> str:
    """Return a JSON value as text; of a digest the beginning."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {_show_value(one)}" for key, one in value.items())
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text[:8] if re.fullmatch(r"[0-9a-f]{32}", text) else text
