"""What a table shows: cells of text with a note, an order and colours, the same in every form."""

from dataclasses import dataclass

from groupwise.evaluation.comparison.content import Cell
from groupwise.evaluation.comparison.words import Words
from groupwise.evaluation.report import numbers

NOT_RUN = "?"
OTHER_ITEMS = "≠"
DASH = "\u2013"
MARK = "\u00a0★"


@dataclass(frozen=True, slots=True)
class Shown:
    """One cell of a table.

    Attributes:
        text: what it says.
        note: a second, smaller line.
        order: what the column is sorted by; the text if None.
        style: colours of a heat map.
        hint: more for those who point at it.
        tag: a coloured word; its colour is the class ``tag_kind`` of the style sheet.
        tag_kind: see there.
        is_strong: stands out.
        is_code: a digest or a key.
    """

    text: str
    note: str = ""
    order: float | None = None
    style: str = ""
    hint: str = ""
    tag: str = ""
    tag_kind: str = ""
    is_strong: bool = False
    is_code: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table; its first ``num_heads`` columns name the row and are aligned left.

    ``kind`` is a class of the style sheet (``heat``, ``wrap``), ``marks`` a colour by row.
    """

    heads: tuple[str, ...]
    rows: tuple[tuple[Shown, ...], ...]
    title: str = ""
    num_heads: int = 1
    kind: str = ""
    marks: tuple[str, ...] = ()


def bound_cell(cell: Cell) -> str:
    """Return the interval of a cell; empty where there are no items."""
    if cell.low is None or cell.high is None:
        return ""
    return numbers.format_share_interval(cell.low, cell.high)


def show_cell(cell: Cell, words: Words) -> Shown:
    """Return the value of a cell, or ``?`` with its state."""
    if cell.value is None:
        note = "" if cell.state == "waiting" else words.title_state(cell.state)
        return Shown(NOT_RUN, note=note, hint=cell.error)
    return Shown(numbers.format_share(cell.value), order=cell.value)


def show_number(number: int | None) -> Shown:
    """Return a count, a dash where there is none."""
    return Shown(DASH if number is None else numbers.format_count(number), order=number)
