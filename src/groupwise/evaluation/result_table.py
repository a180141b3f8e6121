"""One table of results: whatever is measured, read from runs, sweeps and published cells.

A row is (system, run, seed, cell, split, item, measure, value). Rows that share all but the item
are one ``Result`` with their values as an array. Beside them stands what the fairness gate says of
the runs, and what they recorded of settings, data and training.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BeforeValidator, Field, model_validator

from groupwise.core import (
    Config,
    EvaluationError,
    check_records,
    load_config,
    read_json,
    read_jsonl,
)
from groupwise.evaluation.clusters import clustered_ratio
from groupwise.evaluation.fairness import (
    Difference,
    DifferenceKind,
    FairnessVerdict,
    RunFacts,
    check_fairness,
    read_facts,
    read_measures,
)
from groupwise.evaluation.fairness.classing import find_differences
from groupwise.evaluation.fairness.finding import RECORDED, relate_items
from groupwise.evaluation.items import Items
from groupwise.evaluation.looks import state_most_looks
from groupwise.evaluation.measures import ACCURACY, Measure, find_measure
from groupwise.evaluation.methods import compare_methods
from groupwise.evaluation.page import Statement
from groupwise.evaluation.policies import Policies, read_policies
from groupwise.evaluation.predictions import Prediction, read_predictions
from groupwise.evaluation.report.sections import Section, read_sections
from groupwise.evaluation.scoring import list_measures, read_items

Coordinates = tuple[str, ...]
State = Literal["done", "failed", "running", "waiting", "inapplicable"]
Name = Annotated[str, BeforeValidator(lambda value: value if value is None else str(value))]
_SEED = "seeds/seed"
# What may differ between runs that differ in the seed: what is drawn by it, small bases, too.
# Other data and a base of the user's own are ``inputs``.
_FOLLOWS = (
    *("items", "data", "prompts", "budget", "resolved", "is_nested_subset_of"),
    *("base_weights", "tokenizer"),
)
_KINDS: tuple[DifferenceKind, ...] = ("confounding", "intended", "harmless")
_FIRST = (
    *("data", "items", "labels", "conditions", "policies", "prompts", "template", "decoding"),
    *("parser", "normalizer", "metrics", "judge", "base_weights", "config", "seeds", "budget"),
)
_SAMENESS = (
    *("same_predictions", "same_answers"),
    *("identical", "identical_other_weights", "identical_answers"),
)
# Reasons whose sentences speak of running again, which what is only reported cannot be.
_OF_REPORTED = {
    **dict.fromkeys(("unknown", "conditions", "policies"), "unreported"),
    **dict.fromkeys(("normalizer", "metrics", "no_verdict_rate", "accepted"), "reported_apart"),
}
_MAX_TOLD, _MAX_VALUES, _MAX_POINTS = 6, 4, 400
_DRAWN = (
    *("loss", "eval_loss", "reward", "heldout/accuracy", "kl", "ppo_loss", "entropy"),
    *("dead_groups", "invalid", "advantage_std", "advantage_max", "completion_length"),
)
_LOGGED = (*_DRAWN, "grad_norm", "beta")


class GridAxis(Config):
    """One axis of the cells: a key and its values in order.

    ``nested`` says whether the items along it lie in one another; None: they are the same, or it
    is not known.
    """

    key: str
    values: tuple[Name, ...] = Field(min_length=1)
    nested: bool | None = None

    @property
    def has_epochs(self) -> bool:
        """Whether its values are epochs, by its key."""
        return any(word in self.key.lower() for word in ("epoch", "checkpoint"))


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """The rows of one system, run, seed and cell.

    ``value`` is the mean of ``items`` in [0, 1], None unless it is done; a published value has no
    items, and ``low`` and ``high`` as they were published. ``baseline`` is the best value, on the
    same items, of a policy that does not see the whole task, or of always saying the commonest
    label. ``answers`` are predictions by item, ``digest`` is of the items' ids and labels.
    """

    system: str
    cell: Coordinates = ()
    seed: int = 0
    state: State = "done"
    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int | None = None
    num_clusters: int | None = None
    digest: str = ""
    items: Items | None = None
    answers: Mapping[str, Prediction] = field(default_factory=dict[str, Prediction])
    baseline: float | None = None
    policy: str = ""
    folder: str = ""
    error: str = ""

    @classmethod
    def of_items(cls, system: str, items: Items, **more: Any) -> Self:
        """Return the result that items come to; ``more`` are further fields."""
        sizes = {"n": len(items.ids), "num_clusters": len(set(items.clusters))}
        return cls(
            system, value=items.value, digest=items.split_digest, items=items, **sizes, **more
        )


@dataclass(frozen=True, slots=True)
class CellValue:
    """A system in one cell: the mean over the seeds that have run.

    The 95 % interval of one seed draws clusters of items, that of three or more seeds and clusters;
    ``limit`` says why several have none, as ``MethodDifference`` does. ``n`` and ``num_clusters``
    are of the seed that has fewest, ``most`` are the items of that which has most.
    """

    system: str
    cell: Coordinates
    state: State
    value: float | None = None
    low: float | None = None
    high: float | None = None
    limit: str = ""
    n: int | None = None
    most: int | None = None
    num_clusters: int | None = None
    digests: tuple[str, ...] = ()
    invalid_rate: float | None = None
    seeds: tuple[tuple[int, float], ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class SideRow:
    """A setting or a count: a text per system, None where it was not recorded.

    ``kind`` is how the fairness gate classes the difference, None where there is none; ``reason``
    names its sentence about it, and ``words`` fill that.
    """

    aspect: str
    key: str
    values: tuple[str | None, ...]
    kind: DifferenceKind | None = None
    reason: str = ""
    words: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Curve:
    """A logged number of a training step: mean, lowest and highest run of a system by step."""

    step_name: str
    key: str
    system: str
    num_runs: int
    steps: tuple[int, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


class EpochRow(Config):
    """The last logged values within one epoch of a training step, means over ``num_runs`` runs."""

    system: Name
    epoch: int
    values: dict[str, float]
    step: str = ""
    num_runs: int = 1


@dataclass(frozen=True, eq=False, kw_only=True)
class ResultTable:
    """The results of one measure on one split, and what stands beside them in a report.

    Attributes:
        results: in the order of systems and cells.
        axes: of the cells.
        title: what is compared.
        measure: by what.
        split: on which items.
        system_axis: key whose values are the systems; empty for runs.
        policies: that the systems are, where they are those of the same runs.
        is_fair: whether the systems differ in nothing but what is compared; None: not asked.
        sides: settings and data side by side, those that differ first.
        notices: what is to be known of the sources.
        curves: logged numbers of training.
        epochs: the last values of every epoch.
        sections: by system, what its recipe adds to its report.
    """

    results: tuple[Result, ...]
    axes: tuple[GridAxis, ...] = ()
    title: str = ""
    measure: Measure = ACCURACY
    split: str = "test"
    system_axis: str = ""
    policies: Policies = field(default_factory=Policies)
    is_fair: bool | None = True
    sides: tuple[SideRow, ...] = ()
    notices: tuple[Statement, ...] = ()
    curves: tuple[Curve, ...] = ()
    epochs: tuple[EpochRow, ...] = ()
    sections: Mapping[str, tuple[Section, ...]] = field(
        default_factory=dict[str, tuple[Section, ...]]
    )

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

    def select(self, system: str, cell: Coordinates = ()) -> list[Result]:
        """Return the results of a system in a cell that have run, by seed."""
        found = self._by_place.get((system, cell), [])
        return [one for one in found if one.value is not None]

    def summarize(self, system: str, cell: Coordinates = ()) -> CellValue:
        """Return what the seeds of a system come to in a cell."""
        done = self.select(system, cell)
        if not done:
            first, *_ = self._by_place.get((system, cell), [Result(system, state="waiting")])
            return CellValue(system, cell, first.state, error=first.error)
        low, high, limit = done[0].low, done[0].high, ""
        items = [one.items for one in done if one.items is not None]
        if len(done) > 1:
            low = high = None
            if items:  # The mean is a difference to always having 0.
                zeros = [replace(one, values=np.zeros_like(one.values)) for one in items]
                found = compare_methods(zeros, items, is_paired=True)
                limit = found.limit
                if found.low is not None and found.high is not None:
                    low, high = max(0.0, found.low), min(1.0, found.high)
        elif items:  # A single cluster says nothing about others.
            ones = np.ones(len(items[0].ids))
            low, high = clustered_ratio(items[0].values, ones, items[0].clusters) or (0.0, 1.0)
        sizes = [one.n for one in done if one.n is not None]
        clusters = [one.num_clusters for one in done if one.num_clusters is not None]
        rates = [
            fmean(row.predicted is None for row in one.answers.values())
            for one in done
            if one.answers
        ]
        return CellValue(
            system=system,
            cell=cell,
            state="done",
            value=fmean(one.value or 0.0 for one in done),
            low=low,
            high=high,
            limit=limit,
            n=min(sizes, default=None),
            most=max(sizes, default=None),
            num_clusters=min(clusters, default=None),
            digests=tuple(sorted({one.digest for one in done if one.digest})),
            invalid_rate=fmean(rates) if rates else None,
            seeds=tuple((one.seed, one.value or 0.0) for one in done),
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
    rows, policies = _read_folders([one.folder for one in done])
    left = [rows[one.folder] for one in done if one.policy is None]
    last = _choose_policy(left, policies[done[0].folder]) if left else ""
    table, facts = _read_results(
        [replace(one, policy=one.policy or last) for one in sources], question, rows, policies
    )
    is_fair, unlike, told = _judge(table.systems, facts, question)
    names = {row.split for found in rows.values() for row in found}
    shared = [name for name in names if all(any(r.split == name for r in x) for x in rows.values())]
    logs = _read_logs(facts)
    paths = {one.system: one.folder / "evaluate" / "sections.json" for one in done if not axes}
    sections = {name: read_sections(path) for name, path in paths.items() if path.is_file()}
    return replace(
        table,
        axes=tuple(axes),
        is_fair=is_fair,
        sides=_arrange_sides(table.systems, facts, unlike),
        notices=(*told, *_tell_choice(question, table.measure, shared), *table.notices),
        curves=tuple(_draw_curves(logs)),
        epochs=tuple(_list_epochs(logs)),
        sections={name: found for name, found in sections.items() if found},
    )


def read_repetitions(
    folders: Sequence[Path], question: Question
) -> tuple[ResultTable, list[tuple[str, str]]]:
    """Read runs of one recipe as seeds of every policy that all of them have.

    Returns:
        The table, and the pairs to compare: the last policy that the measure applies to with each
        other one.

    Raises:
        EvaluationError: if the runs differ in more than the seed, two have the same one, or they
            have no policy, split or measure in common.
        DataError: if a file is damaged.
    """
    rows, policies = _read_folders(folders)
    order = policies[folders[0]]
    names = order.sort(row.policy for row in rows[folders[0]])
    silent = [
        name
        for name in names
        if all(question.measure in one.find(name).inapplicable for one in policies.values())
    ]
    left = [[row for row in found if row.policy not in silent] for found in rows.values()]
    if not all(left):
        raise EvaluationError(
            f"{question.measure} applies to no policy of these runs",
            got=silent,
            fix="name another measure with --metric",
        )
    last = _choose_policy(left, order)
    shared: list[str] = []
    for name in names:
        wanted = name, question.split
        own = [[row for row in x if (row.policy, row.split) == wanted] for x in left]
        if name != last and all(x and question.measure in list_measures(x) for x in own):
            shared.append(name)
    sources = [Source(n, x, n) for n in order.sort([*shared, last, *silent]) for x in folders]
    table, _ = _read_results(sources, question, rows, policies)
    table = replace(table, policies=order, is_fair=None)
    return table, [(last, name) for name in reversed(shared)]


def _read_folders(
    folders: Iterable[Path],
) -> tuple[dict[Path, list[Prediction]], dict[Path, Policies]]:
    rows: dict[Path, list[Prediction]] = {}
    for folder in dict.fromkeys(folders):
        check_records(folder)
        rows[folder] = read_predictions(folder / "evaluate" / "predictions.jsonl")
    return rows, {folder: read_policies(folder) for folder in rows}


def _choose_policy(runs: Sequence[Sequence[Prediction]], policies: Policies) -> str:
    """Return the last policy in the order of reports that every run has."""
    sets = [dict.fromkeys(row.policy for row in rows) for rows in runs]
    shared = [name for name in sets[0] if all(name in names for names in sets)]
    if not shared:
        have = sorted({name for names in sets for name in names})
        raise EvaluationError(
            "the runs have no policy in common", got=have, fix="name one each, as RUN:POLICY"
        )
    return policies.choose_last(shared)


def _read_results(
    sources: Sequence[Source],
    question: Question,
    rows: Mapping[Path, Sequence[Prediction]],
    policies: Mapping[Path, Policies],
) -> tuple[ResultTable, Facts]:
    """Return a table of the results of sources, and the facts behind them."""
    defined = [find_measure(question.measure, read_measures(folder)) for folder in rows]
    known = [one for one in defined if one is not None]
    name = question.measure
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
        if one.state != "done":
            folder = str(one.folder)
            results.append(
                Result(one.system, one.cell, 0, one.state, folder=folder, error=one.error)
            )
            continue
        own, order = rows[one.folder], policies[one.folder]
        found = read_facts(one.folder, policy=one.policy, predictions=own)
        facts.setdefault((one.system, one.cell), []).append(found)
        results.append(_read_result(one, found, own, order, measure, question.split))
    for runs in facts.values():
        if len(runs) > 1 or not measure.name:
            _check_seeds(runs, question.split)
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
    source: Source,
    facts: RunFacts,
    rows: Sequence[Prediction],
    policies: Policies,
    measure: Measure,
    split: str,
) -> Result:
    seed = facts.facts.get(_SEED)
    named: dict[str, Any] = {"cell": source.cell, "policy": facts.policy}
    named |= {"folder": str(source.folder), "seed": seed if isinstance(seed, int) else 0}
    if measure.name in policies.find(facts.policy).inapplicable:
        return Result(source.system, state="inapplicable", **named)
    here = [row for row in rows if row.split == split] or rows
    items = read_items(here, policy=facts.policy, split=split, measure=measure.name)
    known: list[float] = []
    blind = [name for name in {row.policy: 0 for row in here} if policies.is_baseline(name)]
    for name in () if facts.policy in blind else blind:
        try:
            found = read_items(here, policy=name, split=split, measure=measure.name)
        except EvaluationError:  # The measure is none of this baseline's.
            continue
        known += [found.value] if found.ids == items.ids else []
    if measure.name == "accuracy" and items.labels:
        known.append(Counter(items.labels).most_common(1)[0][1] / len(items.labels))
    best = max(known, key=lambda value: measure.sign * value, default=None)
    answers = facts.answers[split]
    return Result.of_items(source.system, items, answers=answers, baseline=best, **named)


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


def _tell_choice(question: Question, measure: Measure, splits: Iterable[str]) -> list[Statement]:
    """Say on which split a sweep's settings are chosen; of the test split, what to do instead."""
    values = {"keys": question.chosen, "measure": measure, "split": question.split}
    if not question.chosen or question.split != "test":
        return [Statement("notice.chosen_on", values)] if question.chosen else []
    others = sorted({*splits} - {"test"})
    instead = Statement("notice.choose_elsewhere", {"command": "groupwise evaluate RUN ROWS"})
    if others:
        instead = Statement("notice.choose_by", {"metric": f"--metric {others[-1]}/{measure.name}"})
    return [Statement("notice.chosen_on_test", values | {"instead": instead}, "warning")]


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
        seeds = [[run.facts.get(_SEED) for run in runs] for runs in here.values()]
        seed = min(
            (s for s in seeds[0] if s is not None and all(s in x for x in seeds)), default=None
        )
        chosen = [
            replace(next(r for r in runs if seed in (None, r.facts.get(_SEED))), name=name)
            for name, runs in here.items()
        ]
        is_apart = seed is None and any(len(runs) > 1 for runs in here.values())
        factors = (*question.factors, *(("seed",) if is_apart else ()))
        verdicts.append(check_fairness(chosen, factors=factors, split=question.split))
    rows = _merge_differences(names, [one for found in verdicts for one in found.differences])
    # In a grid what is too much the same is told by axis.
    hidden = _SAMENESS if any(cell for _, cell in facts) else ()
    remarks = {
        (one.name, *one.words.items()): Statement(
            "notice.gate", {"reason": one.name, "words": one.words}, one.level
        )
        for found in verdicts
        for one in found.remarks
        if one.name not in hidden
    }
    is_fair = all(found.is_fair for found in verdicts)
    return is_fair, rows, [*_tell_rows(rows), *remarks.values()]


def _merge_differences(names: Sequence[str], differences: Iterable[Difference]) -> list[SideRow]:
    """Return one row per thing that differs, with the worst of its classes, data first."""
    found: dict[tuple[str, str], list[Difference]] = {}
    for one in differences:
        found.setdefault((one.aspect, one.key), []).append(one)
    rows: list[SideRow] = []
    for (aspect, key), group in found.items():
        worst = min(group, key=lambda one: _KINDS.index(one.kind))
        values = [_join(one.values[name] for one in group if name in one.values) for name in names]
        rows.append(SideRow(aspect, key, tuple(values), worst.kind, worst.reason, worst.words))

    def rank(row: SideRow) -> tuple[int, int, str, str]:
        place = _FIRST.index(row.aspect) if row.aspect in _FIRST else len(_FIRST)
        return _KINDS.index(row.kind or "harmless"), place, row.aspect, row.key

    return sorted(rows, key=rank)


def _tell_rows(rows: Sequence[SideRow]) -> Iterator[Statement]:
    """Yield a notice per confounding row (six at most, then a list), and one for harmless ones."""
    unlike = [row for row in rows if row.kind == "confounding"]
    for row in unlike[:_MAX_TOLD]:
        tables = [_parse_table(value) for value in row.values]
        pairs: list[tuple[str, Sequence[str | None]]] = [("", row.values)]
        if all(tables):  # of counts, those that differ
            keys = dict.fromkeys(key for table in tables for key in table)
            shown = {key: [show_count(key, table) for table in tables] for key in keys}
            pairs = [(key, parts) for key, parts in shown.items() if len(set(parts)) > 1]
        kind = "notice.confounding" if any(row.values) else "notice.gate"
        values = {"aspect": row.aspect, "key": row.key, "pairs": pairs}
        yield Statement(kind, values | {"reason": row.reason, "words": row.words}, "error")
    rest = [f"{row.aspect}/{row.key}" for row in unlike[_MAX_TOLD:]]
    if rest:
        yield Statement("notice.more_unlike", {"num": len(rest), "keys": rest}, "error")
    harmless = [f"{row.aspect}/{row.key}" for row in rows if row.kind == "harmless"]
    if harmless:
        yield Statement("notice.harmless", {"num": len(harmless), "keys": harmless[:_MAX_VALUES]})


def _parse_table(text: str | None) -> dict[str, Any]:
    """Return the JSON object that a text is; empty of any other text."""
    try:
        value = json.loads(text or "")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


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


def _arrange_sides(
    names: Sequence[str], facts: Facts, rows: Sequence[SideRow]
) -> tuple[SideRow, ...]:
    """Return settings, counts of data and of its audit side by side, those that differ first."""
    found = [row for row in rows if row.aspect != "data"]
    unlike = {(row.aspect, row.key): row for row in rows}
    owned = [[run for (s, _), runs in facts.items() if s == name for run in runs] for name in names]
    for fact in sorted({fact for own in owned for run in own for fact in run.facts}):
        aspect, _, key = fact.partition("/")
        values = [[run.facts[fact] for run in own if fact in run.facts] for own in owned]
        if aspect == "data":
            found += _list_counts(aspect, f"{key}.", values, unlike.get((aspect, key)))
        elif aspect != "conditions" and (aspect, key) not in unlike:
            found.append(SideRow(aspect, key, tuple(map(_join, values))))
    audits = [[counts for run in own if (counts := _count_audit(run.folder))] for own in owned]
    found += _list_counts("audit", "", audits, None)
    order = {kind: place for place, kind in enumerate((*_KINDS, None))}
    return tuple(sorted(found, key=lambda row: (order[row.kind], row.aspect != "data")))


def _list_counts(
    aspect: str, prefix: str, tables: Sequence[Sequence[Mapping[str, Any]]], unlike: SideRow | None
) -> Iterator[SideRow]:
    """Yield each count of tables, several by system, classed where it differs as the whole is."""
    for key in dict.fromkeys(key for own in tables for table in own for key in table):
        values = tuple(
            _join(show_count(key, table) for table in own if key in table) for own in tables
        )
        row = SideRow(aspect, prefix + key, values)
        is_unlike = unlike is not None and len(set(values)) > 1
        yield replace(unlike, key=row.key, values=values) if unlike and is_unlike else row


def _count_audit(folder: Path) -> dict[str, int]:
    path = folder / "audit" / "audit.json"
    if not path.is_file():
        return {}
    audit = read_json(path, dict)
    findings = [one.get("level") for one in audit.get("findings") or ()]
    counts = {
        "num_rows": audit.get("num_rows"),
        "num_rows_not_used": (audit.get("drops") or {}).get("total"),
        "num_errors": findings.count("error"),
        "num_warnings": findings.count("warning"),
        **{
            f"{name}.{size}": split.get(size)
            for name, split in (audit.get("splits") or {}).items()
            for size in ("num_examples", "num_clusters")
        },
    }
    return {key: value for key, value in counts.items() if isinstance(value, int)}


Logs = Mapping[str, Mapping[str, Sequence[Mapping[str, Mapping[int, float]]]]]
"""By training step and system, of every run the logged numbers by key and step."""


def _read_logs(facts: Facts) -> Logs:
    """Read the logs of the training steps behind each policy."""
    found: dict[str, dict[str, list[dict[str, dict[int, float]]]]] = {}
    for (system, _), runs in facts.items():
        for run in runs:
            every = sorted(path.parent.name for path in run.folder.glob("*/metrics.jsonl"))
            for step in run.facts.get("lineage/steps", every):
                path, log = run.folder / step / "metrics.jsonl", dict[str, dict[int, float]]()
                for row in read_jsonl(path) if path.is_file() else ():
                    for key, value in row.items() if isinstance(row.get("step"), int) else ():
                        is_number = isinstance(value, int | float) and not isinstance(value, bool)
                        if is_number and math.isfinite(value):
                            log.setdefault(key, {})[row["step"]] = float(value)
                if log:
                    found.setdefault(step, {}).setdefault(system, []).append(log)
    return found


def _draw_curves(logs: Logs) -> Iterator[Curve]:
    """Yield what the runs of each system logged at the same steps."""
    for (step, by_system), key in product(logs.items(), _DRAWN):
        for system, runs in by_system.items():
            series = [log[key] for log in runs if key in log]
            shared = sorted(set[int].intersection(*map(set, series))) if series else []
            if shared:
                shared = shared[:: math.ceil(len(shared) / _MAX_POINTS)]
                values = np.asarray([[one[at] for at in shared] for one in series])
                ends = values.mean(axis=0), values.min(axis=0), values.max(axis=0)
                drawn = (tuple(map(float, one)) for one in ends)
                yield Curve(step, key, system, len(series), tuple(shared), *drawn)


def _list_epochs(logs: Logs) -> Iterator[EpochRow]:
    """Yield the last logged values within every epoch, as means over the runs that have it."""
    for step, by_system in logs.items():
        for system, runs in by_system.items():
            tables: list[dict[int, dict[str, float]]] = []
            for log in runs:
                epochs = {at: max(1, math.ceil(one)) for at, one in log.get("epoch", {}).items()}
                tables.append({epoch: {} for epoch in epochs.values()})
                for key in _LOGGED:
                    for at, value in log.get(key, {}).items():
                        if at in epochs:
                            tables[-1][epochs[at]][key] = value
            for epoch in sorted({epoch for table in tables for epoch in table}):
                here = [table[epoch] for table in tables if epoch in table]
                values = {
                    key: float(np.mean([one[key] for one in here if key in one]))
                    for key in _LOGGED
                    if any(key in one for one in here)
                }
                yield EpochRow(
                    step=step, system=system, epoch=epoch, num_runs=len(here), values=values
                )


class PublishedCell(Config):
    """One cell of a file; ``at`` has a value for every axis. One that is left out has not run."""

    system: Name
    at: dict[str, Name] = Field(default_factory=dict[str, str])
    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int | None = Field(default=None, ge=1)
    num_clusters: int | None = Field(default=None, ge=1)
    digest: str = ""
    state: State = "done"
    error: str = ""


class PublishedTable(Config):
    """A file of cells without items: published values, or results of other programs.

    Attributes:
        title: what is compared.
        measure: such as ``accuracy``.
        less_is_better: whether less of it is better; None: as Groupwise defines it.
        split: such as ``test``.
        unit: of values, lows and highs in the file: a share in [0, 1] or percent.
        systems: the axis whose values are compared.
        axes: the axes of the grid.
        cells: what is known of each.
        facts: by system, what its numbers depend on, by ``aspect/key`` as the fairness gate
            knows them: ``config/grpo.beta``, ``data/FILE`` with its digest or counts.
        training: the last logged values of epochs.
    """

    title: str
    measure: str = "accuracy"
    less_is_better: bool | None = None
    split: str = "test"
    unit: Literal["share", "percent"] = "share"
    systems: GridAxis
    axes: tuple[GridAxis, ...] = ()
    cells: tuple[PublishedCell, ...]
    facts: dict[str, dict[str, Any]] = Field(default_factory=dict[str, dict[str, Any]])
    training: tuple[EpochRow, ...] = ()

    @model_validator(mode="after")
    def check_places(self) -> Self:
        """Refuse cells outside the grid, given twice, or of other items though no axis says so."""
        known: dict[Coordinates, PublishedCell] = {}
        seen: set[Coordinates] = set()
        scale = 100 if self.unit == "percent" else 1
        for one in self.cells:
            where = f"the cell {one.system} at {one.at}"
            place = (one.system, *(one.at.get(axis.key, "") for axis in self.axes))
            allowed = [axis.values for axis in (self.systems, *self.axes)]
            is_inside = all(value in values for value, values in zip(place, allowed, strict=True))
            if not is_inside or len(one.at) != len(self.axes):
                raise ValueError(f"{where} is not in the grid")
            if place in seen:
                raise ValueError(f"{where} appears twice")
            seen.add(place)
            if (one.value is None) != (one.state != "done"):
                raise ValueError(f"{where} is done without a value")
            if one.value is not None and not 0 <= one.value <= scale:
                raise ValueError(f"the value {one.value} is not in [0, {scale}]")
            apart = (one.at[axis.key] for axis in self.axes if axis.nested is not None)
            first = known.setdefault((one.system, *apart), one)
            for name in ("n", "digest"):
                ours, theirs = getattr(first, name), getattr(one, name)
                if ours and theirs and ours != theirs:
                    raise ValueError(
                        f"{one.system} is of {name} {ours} at {first.at} and of {name} {theirs} at "
                        f"{one.at}: one table is of the same items; type others into a file of "
                        "their own, or say with nested which axis changes the items"
                    )
        named = {*self.facts, *(row.system for row in self.training)}
        if unknown := sorted(named - set(self.systems.values)):
            raise ValueError(f"there are no systems {unknown}")
        return self


def read_published(path: Path) -> ResultTable:
    """Read a file of cells without items.

    Raises:
        ConfigError: listing every problem of the file.
    """
    file = load_config(PublishedTable, path)
    names, axis = file.systems.values, file.systems.key
    facts: dict[tuple[str, Coordinates], list[RunFacts]] = {}
    for name in names:  # What a system without any facts depends on stays unknown.
        own = file.facts.get(name, {})
        own = {**dict.fromkeys(RECORDED, "recorded"), **own} if own else {}
        facts[name, ()] = [RunFacts(name, Path(name), "", own)]
    rows: list[SideRow] = []
    if len(names) > 1:  # There are no items to relate.
        runs = [run for (run,) in facts.values()]
        is_known = any(f"config/{axis}" in run.facts for run in runs)
        found = find_differences(runs, (), factors=(axis,) if is_known else ())
        found = [replace(one, reason=_OF_REPORTED.get(one.reason, one.reason)) for one in found]
        rows = _merge_differences(names, found)
    known = find_measure(file.measure)
    measure = known or Measure(file.measure, file.measure, file.measure)
    notices = list(_tell_rows(rows))
    if file.less_is_better is not None:
        measure = replace(measure, is_higher_better=not file.less_is_better)
    elif known is None:
        notices.append(Statement("notice.direction", {"measure": measure}, "warning"))
    cells = {(c.system, *(c.at.get(one.key, "") for one in file.axes)): c for c in file.cells}
    results: list[Result] = []
    for system, *place in product(names, *(one.values for one in file.axes)):
        values: dict[str, Any] = {"system": system, "state": "waiting"}
        if cell := cells.get((system, *place)):
            values = cell.model_dump(exclude={"at"})
            for key in ("value", "low", "high"):
                if values[key] is not None:
                    values[key] /= 100 if file.unit == "percent" else 1
        results.append(Result(cell=tuple(place), **values))
    return ResultTable(
        results=tuple(results),
        axes=file.axes,
        title=file.title,
        measure=measure,
        split=file.split,
        system_axis=axis,
        is_fair=not any(row.kind == "confounding" for row in rows),
        sides=_arrange_sides(names, facts, rows),
        notices=tuple(notices),
        epochs=file.training,
    )
