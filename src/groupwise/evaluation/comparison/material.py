"""What a comparison is built from, whether it was read from run folders or from a file of cells.

A comparison is systems × cells. Two runs side by side are two systems with one cell each
and no axes; a sweep has one axis as systems and the others as a grid.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from groupwise.evaluation.fairness import DifferenceKind
from groupwise.evaluation.page import Statement
from groupwise.evaluation.predictions import Items, Measure, Prediction
from groupwise.evaluation.report.sections import Section

Coordinates = tuple[str, ...]
State = Literal["done", "failed", "running", "waiting", "inapplicable"]


@dataclass(frozen=True, slots=True)
class System:
    """One of the things compared: a run, or a value of the system axis.

    Attributes:
        name: unique among the systems.
        policy: whose answers are compared; empty for cells without items.
        folders: its run folders, in the order of its cells; empty for cells without items.
    """

    name: str
    policy: str = ""
    folders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GridAxis:
    """One axis of the grid: a config key and its values in order.

    Attributes:
        key: such as ``evaluation.num_items``.
        values: in the order they are shown.
        is_nested: whether the item sets along it are nested; None where not known.
    """

    key: str
    values: tuple[str, ...]
    is_nested: bool | None = None


@dataclass(frozen=True, slots=True)
class GridCell:
    """One measured value of a system; every number of a cell that has not run is None.

    Attributes:
        system: name of the system.
        coordinates: a value per axis, in the order of the axes.
        state: whether it has run; ``inapplicable``: the measure is none of its system's.
        value: the measure, in [0, 1].
        low: lower end of its 95 % interval; None where there are no items.
        high: upper end.
        n: number of items.
        num_clusters: number of clusters they are in.
        digest: digest of the items' ids and labels; empty where not known.
        invalid_rate: share of all answers of the split that are invalid.
        folder: the run folder; empty for cells without items.
        error: why it failed.
    """

    system: str
    coordinates: Coordinates
    state: State
    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int | None = None
    num_clusters: int | None = None
    digest: str = ""
    invalid_rate: float | None = None
    folder: str = ""
    error: str = ""

    @property
    def is_missing(self) -> bool:
        """Whether there would be a value if it had run."""
        return self.value is None and self.state != "inapplicable"


@dataclass(frozen=True, slots=True)
class SideRow:
    """A setting or a count, by system.

    Attributes:
        aspect: what it belongs to (``config``, ``data``, ``decoding``).
        key: its name.
        values: one text per system; None where it was not recorded.
        kind: how the fairness gate classes the difference; None where there is none.
        reason: name of the gate's sentence about it; empty where there is no difference.
        words: what that sentence is filled with.
    """

    aspect: str
    key: str
    values: tuple[str | None, ...]
    kind: DifferenceKind | None = None
    reason: str = ""
    words: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Curve:
    """One logged number of one training step, over all runs of a system.

    ``low`` and ``high`` are the lowest and highest run at each step, equal to ``mean`` for one run.
    """

    step_name: str
    key: str
    system: str
    num_runs: int
    steps: tuple[float, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class EpochRow:
    """The last logged values within one epoch of training, as means over ``num_runs`` runs."""

    step_name: str
    system: str
    epoch: int
    num_runs: int
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What is compared, as it was read.

    Attributes:
        title: what is compared.
        measure: what is compared, with its titles and direction.
        split: such as ``test``.
        system_axis: the key whose values are the systems; empty for plain runs.
        systems: in input order.
        axes: the axes of the grid; empty for one cell per system.
        cells: of every system, in the order of systems and coordinates.
        configuration: settings side by side, those that differ first.
        data: counts and digests of the data side by side.
        curves: logged numbers of training.
        epochs: the last values of every epoch.
        sections: by system, what its recipe adds to its report; none of a grid.
    """

    title: str
    measure: Measure
    split: str
    system_axis: str
    systems: tuple[System, ...]
    axes: tuple[GridAxis, ...]
    cells: tuple[GridCell, ...]
    configuration: tuple[SideRow, ...] = ()
    data: tuple[SideRow, ...] = ()
    curves: tuple[Curve, ...] = ()
    epochs: tuple[EpochRow, ...] = ()
    sections: Mapping[str, tuple[Section, ...]] = field(
        default_factory=dict[str, tuple[Section, ...]]
    )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the systems, in their order."""
        return tuple(system.name for system in self.systems)

    def cells_of(self, system: str) -> tuple[GridCell, ...]:
        """Return the cells of one system, in the order of the grid."""
        return tuple(cell for cell in self.cells if cell.system == system)

    def mean_of(self, system: str) -> float | None:
        """Return the mean over the cells that have run, None if there are none."""
        values = [c.value for c in self.cells_of(system) if c.value is not None]
        return sum(values) / len(values) if values else None


@dataclass(frozen=True, slots=True)
class Answers:
    """The items behind a cell.

    Attributes:
        items: values of the measure by item, which tests are made of.
        predictions: the answers by item id.
        baseline: the best value of a policy that does not see the whole task, or of always
            giving the most frequent label, on the same items; None where there is none.
    """

    items: Items
    predictions: Mapping[str, Prediction]
    baseline: float | None


@dataclass(frozen=True, slots=True)
class Gate:
    """What the fairness gate said about all runs together.

    Attributes:
        is_fair: whether the systems may be compared.
        rows: every difference, the confounding ones first.
        notices: what it has to say before any number.
    """

    is_fair: bool = True
    rows: tuple[SideRow, ...] = ()
    notices: tuple[Statement, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Material(Setup):
    """All that was read; ``answers`` is empty for reported results.

    ``is_direction_known`` is False for a measure that nobody defined, which is then taken to be
    better when it is higher. ``num_trainings`` is the number of different seeds behind the
    system that has fewest. ``looks`` say how often the items were looked at, and what was chosen
    on them.
    """

    is_direction_known: bool = True
    num_trainings: int = 1
    answers: Mapping[tuple[str, Coordinates], Answers] = field(
        default_factory=dict[tuple[str, Coordinates], Answers]
    )
    gate: Gate = field(default_factory=Gate)
    looks: tuple[Statement, ...] = ()

    def find(self, system: str, coordinates: Coordinates) -> GridCell:
        """Return one cell."""
        return next(
            cell for cell in self.cells if cell.system == system and cell.coordinates == coordinates
        )

    def list_coordinates(self) -> tuple[Coordinates, ...]:
        """Return the places of the grid in their order; one empty place without axes."""
        return tuple(dict.fromkeys(cell.coordinates for cell in self.cells))
