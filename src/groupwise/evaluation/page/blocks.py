"""What a page is made of, as data: words, tables and plots in their order, without layout.

Run reports, comparisons and judge reports are built of these; ``rendering`` lays them out.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict, with_config

from groupwise.evaluation.page.words import Language, Level

DASH = "\u2013"


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class Cell:
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


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class Table:
    """A table; its first column names the rows.

    Attributes:
        title: what it is about; may be empty.
        head: the title of each column, at least one.
        rows: cells as they are shown, as many in each row as in ``head``; of a text, what follows
            a line break is a note to its value.
        num_heads: columns that name the row and are aligned left.
        kind: classes of the style sheet (``heat``, ``wrap``).
        marks: a colour by row.

    Raises:
        ValueError: if there are no columns, or a row has more or fewer cells than the head.
    """

    form: ClassVar = "table"
    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str | Cell, ...], ...]
    num_heads: int = 1
    kind: str = ""
    marks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        widths = {len(self.head), *map(len, self.rows)}
        if len(widths) > 1 or 0 in widths:
            raise ValueError(f"rows of {sorted(widths)} cells in the table {self.title!r}")

    @property
    def cells(self) -> list[list[Cell]]:
        """The rows, each cell with its note apart."""
        return [[one if isinstance(one, Cell) else _split(one) for one in row] for row in self.rows]


def _split(text: str) -> Cell:
    value, _, note = text.partition("\n")
    return Cell(value, note)


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class Tile:
    """A number that the page begins with, large and before the accuracy.

    Attributes:
        value: the number as it is shown.
        text: what it is.
        note: its interval and size, or the like; may be empty.
        is_good: coloured so: never for a number that chance may have given.
    """

    value: str
    text: str
    note: str = ""
    is_good: bool = False


@dataclass(frozen=True, slots=True)
class Plot:
    """One panel.

    Attributes:
        name: file name without its ending.
        title: what it shows, in a few words.
        alt: its content in words.
        draw: draws it on empty axes.
        size: width and height in inches.
        caption: how to read it; may be empty.
    """

    name: str
    title: str
    alt: str
    draw: Callable[[Any], None]
    size: tuple[float, float]
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the reader must know before any number.

    Attributes:
        level: ``error``, ``warning`` or ``info``.
        text: one or two sentences.
        source: the file it comes from; may be empty.
    """

    level: Level
    text: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph; ``kind`` is its class: ``lead`` (how to read what follows) or ``absent``."""

    form: ClassVar = "paragraph"
    text: str
    kind: str = "lead"


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading within a part."""

    form: ClassVar = "heading"
    text: str


@dataclass(frozen=True, slots=True)
class Bullets:
    """A list of sentences."""

    form: ClassVar = "bullets"
    points: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Verbatim:
    """Text to be shown as it is, line by line."""

    form: ClassVar = "verbatim"
    text: str


@dataclass(frozen=True, slots=True)
class Tables:
    """Tables side by side; wide ones below each other."""

    form: ClassVar = "tables"
    tables: tuple[Table, ...]
    is_wide: bool = False


@dataclass(frozen=True, slots=True)
class Plots:
    """Plots side by side; ``kind`` is a class of the style sheet (``small``, ``wide``)."""

    form: ClassVar = "plots"
    plots: tuple[Plot, ...]
    kind: str = "small"


@dataclass(frozen=True, slots=True)
class Region:
    """A rectangle on a picture, in shares of its width and height; ``kind`` is a class."""

    kind: str
    left: float
    top: float
    right: float
    bottom: float
    name: str


@dataclass(frozen=True, slots=True)
class Card:
    """An item with its picture.

    Attributes:
        title: the task, or what else it is known by.
        pills: (class, text) of the words that stand out.
        said: the rest.
        picture: its file.
        gone: what is said in place of a picture that cannot be shown.
        alt: what the picture is.
        regions: what is drawn on it.
    """

    title: str
    pills: tuple[tuple[str, str], ...]
    said: str
    picture: Path | None
    gone: str
    alt: str
    regions: tuple[Region, ...] = ()


@dataclass(frozen=True, slots=True)
class Cards:
    """Items with their pictures."""

    form: ClassVar = "cards"
    cards: tuple[Card, ...]


@dataclass(frozen=True, slots=True)
class Fold:
    """Blocks that are shown on demand."""

    form: ClassVar = "fold"
    summary: str
    blocks: tuple["Block", ...]


Block = Paragraph | Heading | Bullets | Verbatim | Table | Tables | Plots | Cards | Fold


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the page with a title of its own; ``name`` is its link."""

    name: str
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Box:
    """Sentences in a frame above all parts; ``kind`` is its class (``findings``, ``verdict``)."""

    kind: str
    paragraphs: tuple[str, ...] = ()
    title: str = ""
    points: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Page:
    """A whole page.

    Attributes:
        title: heading.
        lead: the line below it.
        language: of all its words.
        notices: what must be known first, the worst first.
        checked: what was checked, said where there are no notices.
        legend: (colour, name) of what the page is about.
        tiles: large numbers.
        boxes: what the numbers say.
        parts: all the rest.
        footer: where it comes from.
        is_sortable: whether a click on the head of a column sorts its table.
        plot_form: how plots are saved beside the Markdown.
    """

    title: str
    lead: str
    language: Language
    notices: tuple[Notice, ...]
    checked: str
    legend: tuple[tuple[str, str], ...] = ()
    tiles: tuple[Tile, ...] = ()
    boxes: tuple[Box, ...] = ()
    parts: tuple[Part, ...] = ()
    footer: tuple[Block, ...] = ()
    is_sortable: bool = False
    plot_form: Literal["png", "svg"] = "svg"
