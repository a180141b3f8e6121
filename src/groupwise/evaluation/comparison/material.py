"""What a comparison is built from, whether it was read from run folders or from a file of cells."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from groupwise.evaluation.comparison.content import GridCell, Setup, SideRow
from groupwise.evaluation.comparison.versus import Coordinates
from groupwise.evaluation.items import Items
from groupwise.evaluation.page import Statement
from groupwise.evaluation.predictions import Prediction


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
    system that has fewest.
    """

    is_direction_known: bool = True
    num_trainings: int = 1
    answers: Mapping[tuple[str, Coordinates], Answers] = field(
        default_factory=dict[tuple[str, Coordinates], Answers]
    )
    gate: Gate = field(default_factory=Gate)

    def find(self, system: str, coordinates: Coordinates) -> GridCell:
        """Return one cell."""
        return next(
            cell for cell in self.cells if cell.system == system and cell.coordinates == coordinates
        )

    def list_coordinates(self) -> tuple[Coordinates, ...]:
        """Return the places of the grid in their order; one empty place without axes."""
        return tuple(dict.fromkeys(cell.coordinates for cell in self.cells))
