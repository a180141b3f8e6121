"""Published cells as results: values without items, from papers or other programs."""

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from groupwise.core import Config, load_config
from groupwise.evaluation.fairness import RULES, RunFacts, find_differences
from groupwise.evaluation.predictions import Measure, find_measure
from groupwise.evaluation.report.phrases import Statement
from groupwise.evaluation.result_table import (
    Coordinates,
    EpochRow,
    GridAxis,
    Name,
    Result,
    ResultTable,
    State,
)
from groupwise.evaluation.sources import arrange_sides, tell_rows

# Reasons whose sentences speak of running again, which what is only reported cannot be.
_OF_REPORTED = {
    **dict.fromkeys(("unknown", "conditions", "policies"), "unreported"),
    **dict.fromkeys(("normalizer", "metrics", "judge", "accepted"), "reported_apart"),
}


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
    """A file of cells without items: published values, or results of other programs."""

    title: str  # what is compared
    measure: str = "accuracy"
    less_is_better: bool | None = None  # None: as Groupwise defines it
    split: str = "test"
    unit: Literal["share", "percent"] = "share"  # of values, lows and highs in the file
    systems: GridAxis  # the axis whose values are compared
    axes: tuple[GridAxis, ...] = ()  # of the grid
    cells: tuple[PublishedCell, ...]
    # By system, what its numbers depend on, by ``aspect/key`` as the fairness gate knows them:
    # ``config/grpo.beta``, ``data/FILE`` with its digest or counts.
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
        own = {**dict.fromkeys(RULES["files"], "recorded"), **own} if own else {}
        facts[name, ()] = [RunFacts(name, Path(name), "", own)]
    runs = [run for (run,) in facts.values()]
    factors = (axis,) if any(f"config/{axis}" in run.facts for run in runs) else ()
    found = find_differences(runs, factors=factors) if len(runs) > 1 else ()
    found = [replace(one, reason=_OF_REPORTED.get(one.reason, one.reason)) for one in found]
    sides = arrange_sides(names, facts, found)
    notices = list(tell_rows(sides))
    known = find_measure(file.measure)
    measure = known or Measure(file.measure, file.measure, file.measure)
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
        is_fair=not any(one.kind == "confounding" for one in found),
        sides=sides,
        notices=tuple(notices),
        epochs=file.training,
    )
