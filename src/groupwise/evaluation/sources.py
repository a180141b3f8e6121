"""Run folders as results, with what the fairness gate says of them and what they recorded."""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from groupwise.core import EvaluationError, check_records, read_jsonl
from groupwise.evaluation.fairness import (
    Difference,
    DifferenceKind,
    FairnessVerdict,
    RunFacts,
    check_fairness,
    find_differences,
    read_facts,
)
from groupwise.evaluation.looks import state_most_looks
from groupwise.evaluation.metrics import list_measures, read_items
from groupwise.evaluation.predictions import (
    Measure,
    Policies,
    Prediction,
    find_measure,
    read_policies,
    read_predictions,
)
from groupwise.evaluation.report.phrases import LANGUAGES, Statement
from groupwise.evaluation.report.tables import read_sections
from groupwise.evaluation.result_table import (
    Coordinates,
    Curve,
    EpochRow,
    GridAxis,
    Result,
    ResultTable,
    SideRow,
    State,
)
from groupwise.evaluation.results import read_measures

_SEED = "seeds/seed"
# What may differ between runs that differ in the seed: what is drawn by it, small bases, too.
# Other data and a base of the user's own are ``inputs``.
_FOLLOWS = (
    *("items", "data", "prompts", "budget", "resolved", "is_nested_subset_of"),
    *("base_weights", "tokenizer"),
)
_KINDS: tuple[DifferenceKind, ...] = ("confounding", "intended", "harmless")
_SAMENESS = (
    *("same_predictions", "same_answers"),
    *("identical", "identical_other_weights", "identical_answers"),
)
_MAX_TOLD, _MAX_VALUES, _MAX_POINTS = 6, 4, 400
_DRAWN = (
    *("loss", "eval_loss", "reward", "heldout/accuracy", "kl", "ppo_loss", "entropy"),
    *("dead_groups", "invalid", "advantage_std", "advantage_max", "completion_length"),
)
_LOGGED = (*_DRAWN, "grad_norm", "beta")


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
    """What is asked of runs.

    Attributes:
        measure: such as ``accuracy``.
        split: such as ``test``.
        factors: what is compared: keys of the config or aspects of the fairness gate.
        title: of the report.
        system_axis: key whose values are the systems; empty for runs.
        chosen: keys of the config of which a sweep chooses the values; not its seeds.
    """

    measure: str = "accuracy"
    split: str = "test"
    factors: tuple[str, ...] = ()
    title: str = ""
    system_axis: str = ""
    chosen: tuple[str, ...] = ()


Facts = Mapping[tuple[str, Coordinates], Sequence[RunFacts]]
"""What stands behind the results, by system and cell."""


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
    table, facts = _read_results(sources, question, runs)
    is_fair, unlike, told = _judge(table.systems, facts, question)
    curves, epochs = _read_training(facts)
    paths = {one.system: one.folder / "evaluate" / "sections.json" for one in done if not axes}
    sections = {name: read_sections(path) for name, path in paths.items() if path.is_file()}
    return replace(
        table,
        axes=tuple(axes),
        is_fair=is_fair,
        sides=arrange_sides(table.systems, facts, unlike),
        notices=(*told, *_tell_choice(question, table.measure, runs), *table.notices),
        curves=tuple(curves),
        epochs=tuple(epochs),
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
    for name in names:
        own = [[r for r in x if (r.policy, r.split) == (name, question.split)] for x in left]
        if all(rows and measure in list_measures(rows) for rows in own):
            kept.add(name)
    sources = [
        Source(x, folder, x) for x in policies.sort(names) if x in kept for folder in folders
    ]
    table, _ = _read_results(sources, question, runs)
    return replace(table, policies=policies, is_fair=None)


class _Run(NamedTuple):
    rows: list[Prediction]
    policies: Policies


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


def _read_results(
    sources: Sequence[Source], question: Question, runs: Mapping[Path, _Run]
) -> tuple[ResultTable, Facts]:
    """Return a table of the results of sources, and the facts behind them."""
    name = question.measure
    known = [one for run in runs if (one := find_measure(name, read_measures(run))) is not None]
    if len({one.is_higher_better for one in known}) > 1:
        raise EvaluationError(
            f"more {name} is better in one run and less in another",
            fix="evaluate all runs again with one version",
        )
    measure = known[0] if known else Measure(name, name, name)
    unknown = [] if known else [Statement("notice.direction", {"measure": measure}, "warning")]
    facts: dict[tuple[str, Coordinates], list[RunFacts]] = {}
    results: list[Result] = []
    for one in sources:
        if one.state == "done":
            found = read_facts(one.folder, policy=one.policy, predictions=runs[one.folder].rows)
            facts.setdefault((one.system, one.cell), []).append(found)
            results.append(_read_result(one, found, runs[one.folder], measure, question.split))
        else:
            named: dict[str, Any] = {
                "state": one.state,
                "folder": str(one.folder),
                "error": one.error,
            }
            results.append(Result(one.system, one.cell, **named))
    for own in facts.values():
        if len(own) > 1:
            _check_seeds(own, question.split)
    names = list(dict.fromkeys(one.system for one in sources))
    looks = state_most_looks((Path(one.folder), one.digest) for one in results if one.digest)
    table = ResultTable(
        results=tuple(sorted(results, key=lambda one: names.index(one.system))),
        title=question.title,
        measure=measure,
        split=question.split,
        system_axis=question.system_axis,
        notices=(*unknown, *looks),
    )
    return table, facts


def _read_result(
    source: Source, facts: RunFacts, run: _Run, measure: Measure, split: str
) -> Result:
    name, seed = facts.policy, facts.facts.get(_SEED)
    named: dict[str, Any] = {"cell": source.cell, "policy": name, "folder": str(source.folder)}
    named["seed"] = seed if isinstance(seed, int) else 0
    if measure.name in run.policies.find(name).inapplicable:
        return Result(source.system, state="inapplicable", **named)
    here = [row for row in run.rows if row.split == split] or run.rows
    items = read_items(here, policy=name, split=split, measure=measure.name)
    known: list[float] = []
    blind = {row.policy: 0 for row in here if run.policies.is_baseline(row.policy)}
    for other in () if name in blind else blind:
        try:
            found = read_items(here, policy=other, split=split, measure=measure.name)
        except EvaluationError:  # The measure is none of this baseline's.
            continue
        known += [found.value] if found.ids == items.ids else []
    if measure.name == "accuracy" and items.labels:
        known.append(Counter(items.labels).most_common(1)[0][1] / len(items.labels))
    named["baseline"] = max(known, key=lambda value: measure.sign * value, default=None)
    return Result.of_items(source.system, items, answers=facts.answers[split], **named)


def find_unlike(runs: Sequence[RunFacts], split: str) -> list[Difference]:
    """Return what keeps runs from repeating one method, in which they differ in the seed only.

    What follows from the seed, such as the items that it draws, is not of it where seeds differ.

    Args:
        runs: as they stand behind one policy each.
        split: whose items are held together.
    """
    if len(runs) < 2:
        return []
    found = find_differences(runs, factors=("seed",), split=split)
    follows = _FOLLOWS if len({run.facts.get(_SEED) for run in runs}) > 1 else ()
    return [one for one in found if one.kind == "confounding" and one.aspect not in follows]


def _check_seeds(runs: Sequence[RunFacts], split: str) -> None:
    """Refuse runs that differ in more than the seed, or in nothing."""
    seeds = [run.facts.get(_SEED) for run in runs]
    for run, seed in zip(runs, seeds, strict=True):
        if not isinstance(seed, int):
            raise EvaluationError(f"{run.folder} does not say its seed", fix="run it again")
    if len(set(seeds)) < len(seeds):
        raise EvaluationError(
            "two of these runs have the same seed",
            got=seeds,
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


def _tell_choice(
    question: Question, measure: Measure, runs: Mapping[Path, _Run]
) -> Iterator[Statement]:
    """Say on which split a sweep's settings are chosen; of the test split, what to do instead."""
    values = {"keys": question.chosen, "measure": measure, "split": question.split}
    if question.chosen and question.split != "test":
        yield Statement("notice.chosen_on", values)
    elif question.chosen:
        splits = [{row.split for row in run.rows} for run in runs.values()]
        others = sorted(set.intersection(*splits) - {"test"})
        instead = Statement("choose_elsewhere", {"command": "groupwise evaluate RUN ROWS"})
        if others:
            instead = Statement("choose_by", {"metric": f"--metric {others[-1]}/{measure.name}"})
        yield Statement("notice.chosen_on_test", values | {"instead": instead}, "warning")


def _judge(
    names: Sequence[str], facts: Facts, question: Question
) -> tuple[bool, list[SideRow], list[Statement]]:
    """Hold the systems together in every cell where two or more have run.

    Of several seeds one run of each system is held: of a seed that all have, else the first.
    """
    verdicts: list[FairnessVerdict] = []
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
        verdicts.append(check_fairness(chosen, factors=factors, split=question.split))
    rows = merge_differences(names, [one for found in verdicts for one in found.differences])
    # In a grid what is too much the same is told by axis.
    hidden = _SAMENESS if any(cell for _, cell in facts) else ()
    remarks = {
        one.values["why"]["en"]: one
        for found in verdicts
        for one in found.remarks
        if one.values["reason"] not in hidden
    }
    is_fair = all(found.is_fair for found in verdicts)
    return is_fair, rows, [*tell_rows(rows), *remarks.values()]


def merge_differences(names: Sequence[str], differences: Iterable[Difference]) -> list[SideRow]:
    """Return one row per thing that differs, with the worst of its classes, data first."""
    found: dict[tuple[str, str], list[Difference]] = {}
    for one in differences:
        found.setdefault((one.aspect, one.key), []).append(one)
    rows: list[SideRow] = []
    for (aspect, key), group in found.items():
        worst = min(group, key=lambda one: _KINDS.index(one.kind))
        values = [_join(one.values[name] for one in group if name in one.values) for name in names]
        why = {language: worst.explain(language) for language in LANGUAGES}
        rows.append(SideRow(aspect, key, tuple(values), worst.kind, worst.reason, why))
    return sorted(rows, key=_rank)


def _rank(row: SideRow) -> tuple[int, int, str, str]:
    """Data comes first: training on other data is the commonest way to fool oneself."""
    place = _KINDS.index(row.kind) if row.kind else len(_KINDS)
    first = ("data", "items", "config")
    return place, first.index(row.aspect) if row.aspect in first else 3, row.aspect, row.key


def tell_rows(rows: Sequence[SideRow]) -> Iterator[Statement]:
    """Yield a notice per confounding row (six at most, then a list), and one for harmless ones."""
    unlike = [row for row in rows if row.kind == "confounding"]
    for row in unlike[:_MAX_TOLD]:
        pairs: list[tuple[str, Sequence[str | None]]] = [("", row.values)]
        try:
            tables = [json.loads(value or "") for value in row.values]
        except ValueError:
            tables = []
        if tables and all(isinstance(table, dict) for table in tables):  # counts that differ
            keys = dict.fromkeys(key for table in tables for key in table)
            shown = {key: [show_count(key, table) for table in tables] for key in keys}
            pairs = [(key, parts) for key, parts in shown.items() if len(set(parts)) > 1]
        kind = "notice.confounding" if any(row.values) else "notice.gate"
        values = {"aspect": row.aspect, "key": row.key, "pairs": pairs}
        yield Statement(kind, values | {"reason": row.reason, "why": row.why}, "error")
    rest = [f"{row.aspect}/{row.key}" for row in unlike[_MAX_TOLD:]]
    if rest:
        yield Statement("notice.more_unlike", {"num": len(rest), "keys": rest}, "error")
    harmless = [f"{row.aspect}/{row.key}" for row in rows if row.kind == "harmless"]
    if harmless:
        yield Statement("notice.harmless", {"num": len(harmless), "keys": harmless[:_MAX_VALUES]})


def _join(values: Iterable[Any]) -> str | None:
    """Return all different values as one text; None of none."""
    shown = list(dict.fromkeys(map(show_value, values)))
    more = " …" if len(shown) > _MAX_VALUES else ""
    return " / ".join(shown[:_MAX_VALUES]) + more if shown else None


def show_value(value: Any) -> str:
    """Return a JSON value as text; of a digest the beginning."""
    if isinstance(value, str):
        return value[:8] if re.fullmatch(r"[0-9a-f]{32}", value) else value
    return json.dumps(value, ensure_ascii=False, default=str)


def show_count(key: str, table: Mapping[str, Any]) -> str:
    """Return a count with what it is a part of: ``5/800`` where ``num_queries`` is 800.

    The whole is a number whose key is the beginning of this key (``num_queries`` of
    ``num_queries_with_a_positive``).
    """
    value = table.get(key)
    wholes = [name for name in table if key.startswith((f"{name}_", f"{name}:"))]
    if isinstance(value, int) and wholes and isinstance(table[wholes[0]], int):
        return f"{value}/{table[wholes[0]]}"
    return "–" if value is None else show_value(value)


def arrange_sides(
    names: Sequence[str], facts: Facts, rows: Sequence[SideRow]
) -> tuple[SideRow, ...]:
    """Return settings and counts of data side by side, those that differ first."""
    found = [row for row in rows if row.aspect != "data"]
    unlike = {(row.aspect, row.key): row for row in rows}
    owned = [[run for (s, _), runs in facts.items() if s == name for run in runs] for name in names]
    for fact in sorted({fact for own in owned for run in own for fact in run.facts}):
        aspect, _, key = fact.partition("/")
        values = [[run.facts[fact] for run in own if fact in run.facts] for own in owned]
        if aspect != "data":
            if aspect != "conditions" and (aspect, key) not in unlike:
                found.append(SideRow(aspect, key, tuple(map(_join, values))))
            continue
        for count in dict.fromkeys(count for own in values for table in own for count in table):
            texts = tuple(
                _join(show_count(count, one) for one in own if count in one) for own in values
            )
            row = unlike.get((aspect, key)) if len(set(texts)) > 1 else None
            row = row or SideRow(aspect, key, texts)
            found.append(replace(row, key=f"{key}.{count}", values=texts))
    return tuple(sorted(found, key=_rank))


Log = Mapping[str, Mapping[int, float]]
"""The finite numbers that a training logged, by key and step."""


def _read_training(facts: Facts) -> tuple[list[Curve], list[EpochRow]]:
    """Read the logs of the steps behind each policy: what its runs logged at the same steps.

    Epochs have the last values that were logged within them.
    """
    logs: dict[str, dict[str, list[Log]]] = {}
    for (system, _), runs in facts.items():
        for run in runs:
            every = sorted(path.parent.name for path in run.folder.glob("*/metrics.jsonl"))
            for step in run.facts.get("lineage/steps", every):
                if (path := run.folder / step / "metrics.jsonl").is_file():
                    logs.setdefault(step, {}).setdefault(system, []).append(_read_log(path))
    curves, epochs = list[Curve](), list[EpochRow]()
    for (step, by_system), key in product(logs.items(), _DRAWN):
        for system, runs in by_system.items():
            series = [log[key] for log in runs if key in log]
            shared = sorted(set[int].intersection(*map(set, series))) if series else []
            shared = shared[:: math.ceil(len(shared) / _MAX_POINTS) or 1]
            values = np.asarray([[one[at] for at in shared] for one in series])
            if shared:
                ends = (values.mean(axis=0), values.min(axis=0), values.max(axis=0))
                drawn = (tuple(map(float, one)) for one in ends)
                curves.append(Curve(step, key, system, len(series), tuple(shared), *drawn))
    for step, by_system in logs.items():
        for system, runs in by_system.items():
            epochs += _list_epochs(step, system, runs)
    return curves, epochs


def _list_epochs(step: str, system: str, runs: Sequence[Log]) -> Iterator[EpochRow]:
    """Yield what runs logged last within each epoch, as means over those that have it."""
    tables: list[dict[int, dict[str, float]]] = []
    for log in runs:
        places = {at: max(1, math.ceil(one)) for at, one in log.get("epoch", {}).items()}
        tables.append({epoch: {} for epoch in places.values()})
        for key, (at, epoch) in product(_LOGGED, places.items()):
            if at in log.get(key, {}):
                tables[-1][epoch][key] = log[key][at]
    for epoch in sorted({epoch for table in tables for epoch in table}):
        here = [table[epoch] for table in tables if epoch in table]
        known = [(key, [one[key] for one in here if key in one]) for key in _LOGGED]
        values = {key: float(np.mean(found)) for key, found in known if found}
        yield EpochRow(system=system, epoch=epoch, values=values, step=step, num_runs=len(here))


def _read_log(path: Path) -> Log:
    found: dict[str, dict[int, float]] = {}
    for row in read_jsonl(path):
        for key, value in row.items() if isinstance(row.get("step"), int) else ():
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if is_number and math.isfinite(value):
                found.setdefault(key, {})[row["step"]] = float(value)
    return found
