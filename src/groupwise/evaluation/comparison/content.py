"""What a comparison says, as data: numbers and named statements, without words or layout.

``layout`` makes a page of it. Its JSON form is the third output beside HTML and Markdown.
"""

from dataclasses import dataclass
from typing import Literal

from groupwise.evaluation.comparison.material import Coordinates, Setup
from groupwise.evaluation.page import Statement
from groupwise.evaluation.paired import DiscordantItem, PairedComparison


@dataclass(frozen=True, slots=True)
class Gap:
    """The difference of two systems in one cell, first minus second.

    Attributes:
        coordinates: the cell.
        difference: None unless both have run on the same items.
        why_none: ``missing`` (one has not run), ``inapplicable`` (the measure is none of one's) or
            ``other_items``; empty with a difference.
        test: the paired comparison, whose b is the first system; None without items.
        is_clear: whether it survives Holm's method over all comparisons of the report.
    """

    coordinates: Coordinates
    difference: float | None
    why_none: Literal["", "missing", "inapplicable", "other_items"] = ""
    test: PairedComparison | None = None
    is_clear: bool = False


@dataclass(frozen=True, slots=True)
class AxisMean:
    """Mean difference over the cells with one value of an axis.

    Attributes:
        value: of the axis.
        mean: over the cells that have a difference; None: none has.
        num_compared: cells that have one.
        num_cells: in all.
        trend: change of the mean from the first to the last epoch; None unless the grid has
            several, on another axis, which all have a difference in the same cells.
    """

    value: str
    mean: float | None
    num_compared: int
    num_cells: int
    trend: float | None = None


@dataclass(frozen=True, slots=True)
class AxisMeans:
    """Mean differences by the values of one axis; ``trend`` over these, if they are epochs."""

    key: str
    rows: tuple[AxisMean, ...]
    trend: float | None = None


@dataclass(frozen=True, slots=True)
class DiscordantList:
    """The first discordant items of one cell, and how many there are in all."""

    coordinates: Coordinates
    num_items: int
    num_first_better: int
    num_second_better: int
    shown: tuple[DiscordantItem, ...]


@dataclass(frozen=True, slots=True)
class Versus:
    """Two systems, cell by cell: first minus second.

    Attributes:
        first: name of the system whose values count positive.
        second: name of the other.
        gaps: one per cell of the grid.
        mean: mean difference over the cells where both have run, None if there are none.
        num_better: cells where the first is better.
        num_worse: cells where it is worse.
        num_equal: cells where both are exactly equal.
        num_tested: cells with a paired test.
        num_clear_better: tested cells where it is better and that survive Holm's method.
        num_clear_worse: likewise, worse.
        best: coordinates of the cell where it gains most (or loses least).
        worst: coordinates of the cell where it loses most (or gains least).
        by_axis: mean differences by axis.
        discordant: items the two differ in, None without items.
    """

    first: str
    second: str
    gaps: tuple[Gap, ...]
    mean: float | None
    num_better: int
    num_worse: int
    num_equal: int
    num_tested: int
    num_clear_better: int
    num_clear_worse: int
    best: Coordinates | None
    worst: Coordinates | None
    by_axis: tuple[AxisMeans, ...]
    discordant: DiscordantList | None = None

    @property
    def num_compared(self) -> int:
        """Number of cells that have a difference."""
        return self.num_better + self.num_worse + self.num_equal

    def find(self, coordinates: Coordinates | None) -> Gap | None:
        """Return the gap of a cell."""
        return next((gap for gap in self.gaps if gap.coordinates == coordinates), None)


@dataclass(frozen=True, slots=True)
class Recommendation:
    """Which system to take and why, or why none is recommended.

    Attributes:
        system: its name; None if there is no recommendation.
        reasons: the evidence for it, or every reason that stands against recommending.
    """

    system: str | None
    reasons: tuple[Statement, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(Setup):
    """Everything a comparison report says.

    Attributes:
        is_fair: whether the systems differ in nothing but what was meant to differ.
        notices: warnings, the worst first.
        findings: what the numbers say.
        recommendation: which system to take, or why none.
        versus: every pair compared.
    """

    is_fair: bool
    notices: tuple[Statement, ...]
    findings: tuple[Statement, ...]
    recommendation: Recommendation
    versus: tuple[Versus, ...]
