"""Run folders as results, with what the fairness gate says of them and what they recorded."""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from groupwise.core import EvaluationError, check_records, read_jsonl
from groupwise.evaluation.alarms import History, Series
from groupwise.evaluation.fairness import (
    Difference,
    DifferenceKind,
    FairnessVerdict,
    RunFacts,
    check_fairness,
    find_differences,
    read_facts,
)
from groupwise.evaluation.metrics import list_measures, read_items
from groupwise.evaluation.predictions import (
    Measure,
    Policies,
    Prediction,
    find_measure,
    read_policies,
    read_predictions,
)
from groupwise.evaluation.report.page import read_sections
from groupwise.evaluation.report.phrases import LANGUAGES, Statement
from groupwise.evaluation.result_table import (
    Coordinates,
    EpochRow,
    GridAxis,
    Result,
    ResultTable,
    SideRow,
    State,
)
from groupwise.evaluation.results import read_measures, state_most_looks

Facts = Mapping[tuple[str, Coordinates], Sequence[RunFacts]]
"""What stands behind the results, by system and cell."""
_SEED = "seeds/seed"
# What may differ between runs that differ in the seed: what is drawn by it, small bases, too.
# Other data and a base of the user's own are ``inputs``.
_FOLLOWS = (
    *("items", "data", "prompts", "budget", "resolved", "is_nested_subset_of"),
    *("base_weights", "tokenizer"),
)
_KINDS: tuple[DifferenceKind, ...] = ("confounding", "intended", "harmless")
_MAX_TOLD, _MAX_VALUES = 6, 4
_LOGGED = (
    *("loss", "eval_loss", "reward", "heldout/accuracy", "kl", "ppo_loss", "entropy"),
    *("dead_groups", "invalid", "advantage_std", "advantage_max", "completion_length"),
    *("grad_norm", "beta"),
)


@dataclass(frozen=True, slots=True)
class Source:
    """A run of a system in a cell; ``policy`` is whose answers count, None: the last all have."""

    system: str
    folder: Path
    policy: str | None = None
    cell: Coordinates = ()
    state: State = "done"
    error: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of runs."""

    measure: str = "accuracy"
    split: str = "test"
    factors: tuple[str, ...] = ()  # what is compared: keys of the config, aspects of the gate
    title: str = ""  # of the report
    system_axis: str = ""  # key whose values are the systems; empty for runs
    chosen: tuple[str, ...] = ()  # keys of which a sweep chooses the values; not its seeds


class _Run(NamedTuple):
    rows: list[Prediction]
    policies: Policies


def read_runs(
    sources: Sequence[Source], question: Question, axes: Sequence[GridAxis] = ()
) -> ResultTable:
    """Read runs as systems and cells; several runs of a system in a cell are its seeds.

    Raises:
        EvaluationError: if a run cannot be read, runs have no policy, split or measure in common,
            or those of one system and cell differ in more than the seed, or in nothing.
        DataError: if a file is damaged.
        RunError: if a file is not what its step wrote.
    """
    done = [one for one in sources if one.state == "done"]
    runs = _read_folders(one.folder for one in done)
    left = [runs[one.folder] for one in done if one.policy is None]
    last = _choose_policy([run.rows for run in left], left[0].policies) if left else ""
    sources = [replace(one, policy=one.policy or last) for one in sources]
    table, facts = _tabulate(sources, question, runs)
    verdicts = list(_judge(table.systems, facts, question))
    differences = [one for found in verdicts for one in found.differences]
    sides = arrange_sides(table.systems, facts, differences)
    told = list(tell_rows(sides))
    # In a grid what is too much the same is told by axis.
    remarks = {one.values["why"]["en"]: one for found in verdicts for one in found.remarks}
    told += [
        one
        for one in remarks.values()
        if not axes or one.level == "error" or one.values["reason"] == "not_varied"
    ]
    if question.chosen and question.split == "test":
        values = {"keys": question.chosen, "measure": table.measure}
        told.append(Statement("notice.chosen_on_test", values, "warning"))
    paths = {one.system: one.folder / "evaluate" / "sections.json" for one in done if not axes}
    sections = {name: read_sections(path) for name, path in paths.items() if path.is_file()}
    return replace(
        table,
        axes=tuple(axes),
        is_fair=all(found.is_fair for found in verdicts),
        sides=sides,
        notices=(*told, *table.notices),
        epochs=tuple(_read_training(facts)),
        sections={name: found for name, found in sections.items() if found},
    )


def read_policies_of_runs(folders: Sequence[Path], question: Question) -> ResultTable:
    """Read runs of one recipe as seeds of every policy that all of them have.

    Raises:
        EvaluationError: if the runs differ in more than the seed, two have the same one, or they
            have no policy, split or measure in common.
        DataError: if a file is damaged.
    """
    runs = _read_folders(folders)
    policies, measure = runs[folders[0]].policies, question.measure
    names = policies.sort(row.policy for row in runs[folders[0]].rows)
    silent = [
        x for x in names if all(measure in r.policies.find(x).inapplicable for r in runs.values())
    ]
    left = [[row for row in run.rows if row.policy not in silent] for run in runs.values()]
    if not all(left):
        raise EvaluationError(
            f"{measure} applies to no policy of these runs",
            got=silent,
            fix="name another measure with --metric",
        )
    kept = {_choose_policy(left, policies), *silent}
    for name in {*names} - kept:
        own = [[r for r in x if (r.policy, r.split) == (name, question.split)] for x in left]
        kept |= {name} if all(x and measure in list_measures(x) for x in own) else set()
    sources = [Source(x, folder, x) for x in names if x in kept for folder in folders]
    table, _ = _tabulate(sources, question, runs)
    return replace(table, policies=policies, is_fair=None)


def _read_folders(folders: Iterable[Path]) -> dict[Path, _Run]:
    found: dict[Path, _Run] = {}
    for folder in dict.fromkeys(folders):
        check_records(folder)
        rows = read_predictions(folder / "evaluate" / "predictions.jsonl")
        found[folder] = _Run(rows, read_policies(folder))
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
    sources: Sequence[Source], question: Question, runs: Mapping[Path, _Run]
) -> tuple[ResultTable, Facts]:
    """Return a table of the results of sources, and the facts behind them."""
    name, split = question.measure, question.split
    known = [one for run in runs if (one := find_measure(name, read_measures(run))) is not None]
    if len({one.is_higher_better for one in known}) > 1:
        raise EvaluationError(
            f"more {name} is better in one run and less in another",
            fix="evaluate all runs again with one version",
        )
    measure = known[0] if known else Measure(name, name, name)
    notices = [] if known else [Statement("notice.direction", {"measure": measure}, "warning")]
    facts: dict[tuple[str, Coordinates], list[RunFacts]] = {}
    results: list[Result] = []
    for one in sources:
        named: dict[str, Any] = {"folder": str(one.folder), "cell": one.cell}
        if one.state != "done":
            results.append(Result(one.system, state=one.state, error=one.error, **named))
            continue
        rows, policies = runs[one.folder]
        found = read_facts(one.folder, policy=one.policy, predictions=rows)
        facts.setdefault((one.system, one.cell), []).append(found)
        seed = found.facts.get(_SEED)
        named |= {"policy": found.policy, "seed": seed if isinstance(seed, int) else 0}
        if name in policies.find(found.policy).inapplicable:
            results.append(Result(one.system, state="inapplicable", **named))
            continue
        here = [row for row in rows if row.split == split] or rows
        items = read_items(here, policy=found.policy, split=split, measure=name)
        blind = {row.policy: 0 for row in here if policies.is_baseline(row.policy)}
        values: list[float] = []
        for other in () if found.policy in blind else blind:
            try:
                theirs = read_items(here, policy=other, split=split, measure=name)
            except EvaluationError:  # The measure is none of this baseline's.
                continue
            values += [theirs.value] if theirs.ids == items.ids else []
        if name == "accuracy" and items.labels:
            values.append(Counter(items.labels).most_common(1)[0][1] / len(items.labels))
        named["baseline"] = max(values, key=lambda value: measure.sign * value, default=None)
        answers = found.answers[split]
        results.append(Result.of_items(one.system, items, answers=answers, **named))
    for own in facts.values():
        if len(own) > 1:
            _check_seeds(own, split)
    names = list(dict.fromkeys(one.system for one in sources))
    looks = state_most_looks((Path(one.folder), one.digest) for one in results if one.digest)
    table = ResultTable(
        results=tuple(sorted(results, key=lambda one: names.index(one.system))),
        title=question.title,
        measure=measure,
        split=split,
        system_axis=question.system_axis,
        notices=(*notices, *looks),
    )
    return table, facts


def find_unlike(runs: Sequence[RunFacts], split: str) -> list[Difference]:
    """Return what keeps runs from repeating one method, in which they differ in the seed only.

    What follows from the seed, such as the items that it draws, is not of it where seeds differ.
    Runs stand behind one policy each.
    """
    if len(runs) < 2:
        return []
    found = find_differences(runs, factors=("seed",), split=split)
    follows = _FOLLOWS if len({run.facts.get(_SEED) for run in runs}) > 1 else ()
    return [one for one in found if one.kind == "confounding" and one.aspect not in follows]


def _check_seeds(runs: Sequence[RunFacts], split: str) -> None:
    """Refuse runs that differ in more than the seed, or in nothing."""
    seeds = [run.facts.get(_SEED) for run in runs]
    if len(set(seeds)) < len(seeds) or None in seeds:
        raise EvaluationError(
            "two of these runs have the same seed, or one does not say its own",
            got=seeds,
            fix="leave one of them out, or name the folder of each run once",
        )
    if unlike := [one.name for one in find_unlike(runs, split)]:
        raise EvaluationError(
            "these runs differ in more than the seed",
            got=", ".join(unlike[:3]) + (f" and {len(unlike) - 3} more" if unlike[3:] else ""),
            expected="runs of one recipe and config that differ in the seed only",
            fix="give those of the other method as the other side of `groupwise compare`",
        )


def _judge(names: Sequence[str], facts: Facts, question: Question) -> Iterator[FairnessVerdict]:
    """Hold the systems together in every cell where two or more have run.

    Of several seeds one run of each system is held: of a seed that all have, else the first.
    """
    for cell in dict.fromkeys(cell for _, cell in facts):
        here = {name: facts[name, cell] for name in names if (name, cell) in facts}
        if len(here) < 2:
            continue
        seeds = [{run.facts.get(_SEED) for run in runs} - {None} for runs in here.values()]
        seed = min(set.intersection(*seeds), default=None)
        chosen = [
            replace(next(r for r in runs if seed in (None, r.facts.get(_SEED))), name=name)
            for name, runs in here.items()
        ]
        is_apart = seed is None and any(len(runs) > 1 for runs in here.values())
        factors = (*question.factors, *(("seed",) if is_apart else ()))
        yield check_fairness(chosen, factors=factors, split=question.split)


def arrange_sides(
    names: Sequence[str], facts: Facts, differences: Iterable[Difference]
) -> tuple[SideRow, ...]:
    """Return settings and data side by side, those that differ first.

    Of what differs in several cells the worst class counts. Data comes first: training on other
    data is the commonest way to fool oneself.
    """
    unlike: dict[str, list[Difference]] = {}
    for one in differences:
        unlike.setdefault(one.name, []).append(one)
    owned = [
        [run.facts for (s, _), runs in facts.items() if s == name for run in runs] for name in names
    ]
    known = {
        fact: [[own[fact] for own in side if fact in own] for side in owned]
        for fact in {fact for side in owned for own in side for fact in own}
    }
    for fact, group in unlike.items():
        known[fact] = [[x.values[name] for x in group if name in x.values] for name in names]
    rows: list[SideRow] = []
    places = {"data": 0, "items": 1, "config": 2}
    for fact in sorted(known, key=lambda x: (places.get(x.partition("/")[0], 3), x)):
        aspect, _, key = fact.partition("/")
        row = SideRow(aspect, key, tuple(map(_join, known[fact])))
        if group := unlike.get(fact):
            worst = min(group, key=lambda one: _KINDS.index(one.kind))
            why = {language: worst.explain(language) for language in LANGUAGES}
            row = replace(row, kind=worst.kind, why=why)
        rows += [row] if group or aspect != "conditions" else []
    kinds = (*_KINDS, None)
    return tuple(sorted(rows, key=lambda row: kinds.index(row.kind)))


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
    shown = list(dict.fromkeys(map(show_value, values)))
    more = " …" if len(shown) > _MAX_VALUES else ""
    return " / ".join(shown[:_MAX_VALUES]) + more if shown else None


def show_value(value: Any) -> str:
    """Return a JSON value as text; of a digest the beginning."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {show_value(one)}" for key, one in value.items())
    if isinstance(value, str):
        return value[:8] if re.fullmatch(r"[0-9a-f]{32}", value) else value
    return json.dumps(value, ensure_ascii=False, default=str)


def _read_training(facts: Facts) -> Iterator[EpochRow]:
    """Yield what the runs of each system logged, by step and epoch."""
    logs: dict[tuple[str, str], list[Mapping[int, Mapping[str, float]]]] = {}
    for (system, _), runs in facts.items():
        for run in runs:
            every = sorted(path.parent.name for path in run.folder.glob("*/metrics.jsonl"))
            for step in run.facts.get("lineage/steps", every):
                if (path := run.folder / step / "metrics.jsonl").is_file():
                    logs.setdefault((step, system), []).append(_read_log(path))
    steps = list(dict.fromkeys(step for step, _ in logs))
    for (step, system), own in sorted(logs.items(), key=lambda x: steps.index(x[0][0])):
        yield from average_epochs(system, step, own)


def _read_log(path: Path) -> dict[int, dict[str, float]]:
    """Return the last finite numbers that a training logged in each epoch; as epoch 0 the first."""
    series = History(read_jsonl(path)).series
    epochs, found = series.get("epoch", Series("epoch")), dict[int, dict[str, float]]()
    places = {s: max(1, math.ceil(x)) for s, x in zip(epochs.steps, epochs.values, strict=True)}
    own = [series[key] for key in _LOGGED if key in series]
    logged = [(s, one.key, x) for one in own for s, x in zip(one.steps, one.values, strict=True)]
    for step, key, value in sorted(logged, key=lambda x: x[0]):
        if step in places:
            found.setdefault(0, {}).setdefault(key, value)
            found.setdefault(places[step], {})[key] = value
    return found


def average_epochs(
    system: str, step: str, logs: Sequence[Mapping[int, Mapping[str, float]]]
) -> Iterator[EpochRow]:
    """Yield the means of what several runs logged by epoch, of epochs and keys that all have."""
    for epoch in sorted(set[int].intersection(*map(set, logs))):
        rows = [log[epoch] for log in logs]
        keys = [key for key in rows[0] if all(key in row for row in rows)]
        means = {key: fmean(row[key] for row in rows) for key in keys}
        yield EpochRow(system, step, epoch, means, len(logs))
