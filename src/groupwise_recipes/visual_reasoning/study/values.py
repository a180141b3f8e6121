"""The value of a cell: of one run with its interval over items, of several with one over seeds."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from groupwise.evaluation import (
    Items,
    MethodDifference,
    Metric,
    Prediction,
    compare_methods,
    compute_metrics,
    list_measures,
    read_items,
)
from groupwise_recipes.visual_reasoning.judging import FAULTS
from groupwise_recipes.visual_reasoning.measuring import ALIGNMENT
from groupwise_recipes.visual_reasoning.study.arms import Arm, Measured
from groupwise_recipes.visual_reasoning.study.tables import Column

State = Literal["done", "waiting", "inapplicable", "no_item"]


@dataclass(frozen=True)
class Value:
    """A cell.

    Attributes:
        state: ``waiting``: no run has it; ``inapplicable``: the measure is none of the policy's;
            ``no_item``: no item has it.
        value: mean over seeds, in [0, 1].
        low: lower end of the 95 % interval; None where ``limit`` says why there is none.
        high: upper end.
        n: items of the run that has fewest.
        most: items of the run that has most.
        by_seed: the value of each seed.
        limit: empty, or why there is no interval, as ``MethodDifference`` has it.
    """

    state: State
    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    most: int = 0
    by_seed: tuple[tuple[int, float], ...] = ()
    limit: str = ""


def measure_arm(arm: Arm, column: Column, split: str) -> Value:
    """Return the value of an arm in a column."""
    if not arm.runs:
        return Value("waiting")
    applied = ALIGNMENT if column.measure in FAULTS else column.measure
    if all(applied in one.run.policies.find(one.policy).inapplicable for one in arm.runs):
        return Value("inapplicable")
    asked = _list_asked(arm, column, split)
    if not asked:
        return Value("waiting")
    measured = _keep_measured(asked, split)
    if not measured:
        return Value("no_item")
    if len(measured) == 1:
        return _measure_one(*measured[0], split)
    return _measure_seeds(measured, split)


def measure_difference(
    first: Arm, second: Arm, column: Column, split: str
) -> MethodDifference | None:
    """Return what the second arm has more than the first, over the seeds that both have.

    Both must have been asked the same items; those that count have a value on both sides, as a
    verdict on reasoning may be missing on one. None without such a seed or item.
    """
    sides = [
        {one.seed: (one, name) for one, name in _keep_measured(asked, split)}
        for asked in (_list_asked(arm, column, split) for arm in (first, second))
    ]
    pairs = [
        _keep_common(*(_read_items(*side[seed], split) for side in sides))
        for seed in sorted(sides[0].keys() & sides[1].keys())
        if _read_asked(sides[0][seed][0], split) == _read_asked(sides[1][seed][0], split)
    ]
    found = [pair for pair in pairs if pair is not None]
    return compare_methods(*zip(*found, strict=True), is_paired=True) if found else None


def _read_asked(one: Measured, split: str) -> set[tuple[str, str, str | None]]:
    return {(row.example_id, row.cluster, row.label) for row in _choose_rows(one, split)}


def _keep_common(one: Items, other: Items) -> tuple[Items, Items] | None:
    """Return the items that both have; None if there are none."""
    common = {*one.ids} & {*other.ids}
    return (_choose_items(one, common), _choose_items(other, common)) if common else None


def _choose_items(items: Items, ids: set[str]) -> Items:
    kept = [place for place, one in enumerate(items.ids) if one in ids]

    def choose(part: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(part[place] for place in kept) if part else ()

    return replace(
        items,
        ids=choose(items.ids),
        clusters=choose(items.clusters),
        values=items.values[kept],
        labels=choose(items.labels),
        answers=choose(items.answers),
    )


def _list_asked(arm: Arm, column: Column, split: str) -> list[tuple[Measured, str]]:
    """Return the runs of an arm that have items of the column's part, each with its measure."""
    found = [(one, _name_measure(one, column, split)) for one in arm.runs]
    return [(one, name) for one, name in found if name is not None]


def _keep_measured(asked: Sequence[tuple[Measured, str]], split: str) -> list[tuple[Measured, str]]:
    return [(one, name) for one, name in asked if name in list_measures(_choose_rows(one, split))]


def _read_items(one: Measured, name: str, split: str) -> Items:
    return read_items(one.predictions, policy=one.policy, split=split, measure=name)


def _choose_rows(one: Measured, split: str) -> list[Prediction]:
    return [row for row in one.predictions if row.split == split]


def _name_measure(one: Measured, column: Column, split: str) -> str | None:
    """Return the measure with the part of the items that the run has; None: it has none."""
    rows = _choose_rows(one, split)
    if column.part is None:
        return column.measure if rows else None
    name, values = column.part
    have = {row.fields.get(name) for row in rows}
    value = next((value for value in values if value in have), None)
    return None if value is None else f"{column.measure}[{name}={value}]"


def _measure_one(one: Measured, name: str, split: str) -> Value:
    field = name.partition("[")[2].partition("=")[0]
    rows = _choose_rows(one, split)
    metrics = compute_metrics(rows, labels=(), slices=(field,) if field else ())
    found: Metric = next(metric for metric in metrics if metric.measure == name)
    ends = (found.value, found.low, found.high)
    return Value("done", *ends, found.n, found.n, ((one.seed, found.value),))


def _measure_seeds(measured: Sequence[tuple[Measured, str]], split: str) -> Value:
    """Return the mean over seeds; its interval is that of the difference to always having 0."""
    items = [_read_items(one, name, split) for one, name in measured]
    found = compare_methods([_empty(one) for one in items], items, is_paired=True)
    sizes = [len(one.ids) for one in items]
    seeds = [(one.seed, each.value) for (one, _), each in zip(measured, items, strict=True)]
    low = None if found.low is None else max(0.0, found.low)
    return Value(
        "done",
        found.estimate,
        low,
        None if found.high is None else min(1.0, found.high),
        min(sizes),
        max(sizes),
        tuple(seeds),
        found.limit,
    )


def _empty(items: Items) -> Items:
    return replace(items, values=np.zeros_like(items.values), is_binary=True)
