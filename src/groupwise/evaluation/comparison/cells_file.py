"""Reported results: published tables and results of other programs, without items.

Such cells have values but no items, so nothing in them can be tested; what is known of their
settings and data is compared as it is for runs.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from groupwise.core import Config, load_config
from groupwise.evaluation.comparison.material import (
    EpochRow,
    Gate,
    GridAxis,
    GridCell,
    Material,
    State,
    System,
)
from groupwise.evaluation.comparison.sides import (
    arrange_configuration,
    arrange_data,
    merge_differences,
    tell_rows,
)
from groupwise.evaluation.facts import RunFacts
from groupwise.evaluation.fairness import RECORDED, find_differences
from groupwise.evaluation.predictions import Measure, find_measure

_SAID = {
    **dict.fromkeys(("unknown", "conditions", "policies"), "unreported"),
    **dict.fromkeys(("normalizer", "metrics", "no_verdict_rate", "accepted"), "reported_apart"),
}
"""Reasons whose sentences speak of running again, which what is only reported cannot be."""
Name = Annotated[str, BeforeValidator(lambda value: value if value is None else str(value))]


class AxisTable(Config):
    """An axis and its values.

    Attributes:
        key: its name.
        values: in the order they are shown.
        nested: whether the item sets along it are nested; None: they are the same.
    """

    key: str
    values: tuple[Name, ...] = Field(min_length=1)
    nested: bool | None = None


class CellTable(Config):
    """One cell; ``at`` has a value for every axis.

    A cell left out has not run; one whose measure does not apply is ``state: inapplicable``.
    """

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

    def place(self, axes: Iterable[AxisTable]) -> tuple[str, ...]:
        """Return its system and its value on every axis."""
        return (self.system, *(self.at.get(axis.key, "") for axis in axes))


class EpochTable(Config):
    """The last logged values of one epoch of one system."""

    system: Name
    epoch: int
    values: dict[str, float]
    step: str = ""


class CellsFile(Config):
    """A file of cells without items.

    Attributes:
        title: what is compared.
        measure: such as ``accuracy``.
        less_is_better: whether less of it is better; None: as Groupwise defines it.
        split: such as ``test``.
        unit: of values, lows and highs in the file: a share in [0, 1] or percent.
        systems: the axis whose values are compared.
        axes: the axes of the grid.
        cells: what is known of each; a cell without an entry is shown as not run.
        facts: by system, what its numbers depend on, by ``aspect/key`` as the fairness gate
            knows them: ``config/grpo.beta``, ``data/FILE`` with its digest or counts.
        training: the last logged values of epochs.
    """

    title: str
    measure: str = "accuracy"
    less_is_better: bool | None = None
    split: str = "test"
    unit: Literal["share", "percent"] = "share"
    systems: AxisTable
    axes: tuple[AxisTable, ...] = ()
    cells: tuple[CellTable, ...]
    facts: dict[str, dict[str, Any]] = Field(default_factory=dict[str, dict[str, Any]])
    training: tuple[EpochTable, ...] = ()

    @model_validator(mode="after")
    def check_places(self) -> "CellsFile":
        """Refuse cells outside the grid, cells that appear twice and unknown systems."""
        seen: set[tuple[str, ...]] = set()
        allowed = [self.systems.values, *(axis.values for axis in self.axes)]
        for cell in self.cells:
            where, place = f"the cell {cell.system} at {cell.at}", cell.place(self.axes)
            is_inside = all(value in values for value, values in zip(place, allowed, strict=True))
            if not is_inside or len(cell.at) != len(self.axes):
                raise ValueError(f"{where} is not in the grid")
            if place in seen:
                raise ValueError(f"{where} appears twice")
            seen.add(place)
            if (cell.value is None) != (cell.state != "done"):
                raise ValueError(f"{where} is done without a value")
            if cell.value is not None and not 0 <= cell.value <= self.scale:
                raise ValueError(f"the value {cell.value} is not in [0, {self.scale}]")
        self._check_items()
        named = {*self.facts, *(row.system for row in self.training)}
        unknown = sorted(named - set(self.systems.values))
        if unknown:
            raise ValueError(f"there are no systems {unknown}")
        return self

    def _check_items(self) -> None:
        """Refuse cells of one system that are of other items though no axis says so.

        Raises:
            ValueError: naming the first two.
        """
        known: dict[tuple[str, ...], CellTable] = {}
        for cell in self.cells:
            place = cell.place(axis for axis in self.axes if axis.nested is not None)
            first = known.setdefault(place, cell)
            for name in ("n", "digest"):
                one, other = getattr(first, name), getattr(cell, name)
                if one and other and one != other:
                    raise ValueError(
                        f"{cell.system} is of {name} {one} at {first.at} and of {name} {other} at "
                        f"{cell.at}: one table is of the same items; type others into a file of "
                        "their own, or say with nested which axis changes the items"
                    )

    @property
    def scale(self) -> int:
        """What a share of 1 is in the file."""
        return 100 if self.unit == "percent" else 1


def read_cells_file(path: Path) -> Material:
    """Return what a comparison of reported results is built from.

    Raises:
        ConfigError: listing every problem of the file.
    """
    table = load_config(CellsFile, path)
    names = table.systems.values
    facts = {(name, ()): _read_facts(name, table.facts.get(name, {})) for name in names}
    gate = _judge(names, list(facts.values()), table.systems.key)
    return Material(
        title=table.title,
        measure=_define_measure(table),
        split=table.split,
        system_axis=table.systems.key,
        systems=tuple(System(name) for name in names),
        axes=tuple(GridAxis(axis.key, axis.values, axis.nested) for axis in table.axes),
        cells=tuple(_list_cells(table)),
        is_direction_known=table.less_is_better is not None
        or find_measure(table.measure) is not None,
        gate=gate,
        configuration=arrange_configuration(names, facts, gate),
        data=arrange_data(names, facts, gate),
        epochs=tuple(
            EpochRow(row.step, row.system, row.epoch, 1, row.values) for row in table.training
        ),
    )


def _define_measure(table: CellsFile) -> Measure:
    name = table.measure
    known = find_measure(name) or Measure(name, name, name)
    if table.less_is_better is None:
        return known
    return replace(known, is_higher_better=not table.less_is_better)


def _list_cells(table: CellsFile) -> Iterator[GridCell]:
    known = {cell.place(table.axes): cell for cell in table.cells}
    for system, *place in product(table.systems.values, *(axis.values for axis in table.axes)):
        row = known.get((system, *place))
        if row is None:
            yield GridCell(system, tuple(place), "waiting")
            continue
        values = row.model_dump(exclude={"at"})
        for name in ("value", "low", "high"):
            values[name] = None if values[name] is None else values[name] / table.scale
        yield GridCell(coordinates=tuple(place), **values)


def _read_facts(name: str, values: Mapping[str, Any]) -> RunFacts:
    """Return reported facts as the gate takes them; those of a system without any stay unknown."""
    recorded = dict.fromkeys(RECORDED, "recorded") if values else {}
    return RunFacts(name, Path(name), "", {**recorded, **values})


def _judge(names: Sequence[str], facts: Sequence[RunFacts], axis: str) -> Gate:
    """Hold the systems' facts together; there are no items to relate."""
    if len(facts) < 2:
        return Gate()
    is_known = any(f"config/{axis}" in one.facts for one in facts)
    classed = find_differences(facts, (), factors=(axis,) if is_known else ())
    found = [replace(one, reason=_SAID.get(one.reason, one.reason)) for one in classed]
    rows = merge_differences(names, found)
    is_fair = not any(row.kind == "confounding" for row in rows)
    return Gate(is_fair, rows, tuple(tell_rows(rows)))
