"""Pages of reports as data, written as one HTML file and as Markdown with its pictures.

Run reports, comparisons, studies and judge reports are built of these blocks. Texts are shown as
they are, but for what is marked as code. Rendering changes no number and reads only pictures.
"""

import io
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup, escape

from groupwise.core import DataError, open_picture, write_text
from groupwise.evaluation.predictions import Language, exact
from groupwise.evaluation.report.phrases import CODE, Level, Phrases

PICTURE_WIDTH = 880


@exact
@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of a table."""

    text: str  # what it says
    note: str = ""  # a second, smaller line
    order: float | None = None  # what the column is sorted by; the text if None
    style: str = ""  # colours of a heat map
    hint: str = ""  # more for those who point at it
    tag: str = ""  # a coloured word; its colour is the class ``tag_kind`` of the style sheet
    tag_kind: str = ""  # see there
    is_strong: bool = False  # stands out
    is_code: bool = False  # a digest or a key


@exact
@dataclass(frozen=True, slots=True)
class Table:
    """A table; of a cell that is a text, what follows a line break is a note to its value.

    Raises:
        ValueError: if there are no columns, or a row has more or fewer cells than the head.
    """

    title: str  # what it is about; may be empty
    head: tuple[str, ...]  # the title of each column, at least one
    rows: tuple[tuple[str | Cell, ...], ...]  # as many cells in each as in ``head``
    num_heads: int = 1  # columns that name the row and are aligned left
    kind: str = ""  # classes of the style sheet (``heat``, ``wrap``)
    marks: tuple[str, ...] = ()  # a colour by row

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


@exact
@dataclass(frozen=True, slots=True)
class Tile:
    """A large number at the top."""

    value: str
    text: str  # what it is
    note: str = ""  # its interval
    is_good: bool = False  # never of what chance gives


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot, drawn when the page is written."""

    name: str  # its file without an ending
    title: str
    alt: str  # its content in words
    draw: Callable[[Any], None]  # draws it on axes
    size: tuple[float, float]  # in inches
    caption: str = ""  # how to read it


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the reader must know before any number."""

    level: Level
    text: str
    source: str = ""  # the file it comes from


@dataclass(frozen=True, slots=True)
class Card:
    """An item with its picture and what is drawn on it."""

    title: str
    pills: tuple[tuple[str, str], ...]  # class of the style sheet and text of what stands out
    said: str  # the rest
    picture: Path | None
    gone: str  # stands for a picture that cannot be shown
    alt: str
    # Rectangles: class, name; left, top, right and bottom in shares of the picture's sides.
    regions: tuple[tuple[str, str, float, float, float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Block:
    """What stands in a part of a page; of its fields one has something."""

    text: str = ""  # a paragraph, or what ``kind`` says
    kind: str = ""  # of a text ``heading``, ``verbatim``, ``fold`` or a class of the style sheet
    points: tuple[str, ...] = ()  # a list of sentences
    tables: tuple[Table, ...] = ()  # side by side; wide ones below each other
    plots: tuple[Plot, ...] = ()  # side by side
    cards: tuple[Card, ...] = ()
    blocks: tuple["Block | Table", ...] = ()  # of a fold: shown on demand below its text


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the page with a title of its own."""

    name: str  # its link
    title: str
    blocks: tuple[Block | Table, ...]


@dataclass(frozen=True, slots=True)
class Box:
    """Sentences in a frame above all parts."""

    kind: str  # class of the style sheet (``findings``, ``verdict``)
    paragraphs: tuple[str, ...] = ()
    title: str = ""
    points: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Page:
    """A whole page."""

    title: str  # heading
    lead: str  # the line below it
    language: Language  # of all its words
    notices: tuple[Notice, ...]  # what must be known first, the worst first
    checked: str  # what was checked, said where there are no notices
    legend: tuple[tuple[str, str], ...] = ()  # (colour, name) of what the page is about
    tiles: tuple[Tile, ...] = ()  # large numbers
    boxes: tuple[Box, ...] = ()  # what the numbers say
    parts: tuple[Part, ...] = ()  # all the rest
    footer: tuple[Block | Table, ...] = ()  # where it comes from
    is_sortable: bool = False  # whether a click on the head of a column sorts its table


def render_html(page: Page) -> str:
    """Return a page with its style, plots and pictures inside."""
    return _render("page.html.j2", page, plots=_draw_plots(page), pictures=_shrink_pictures(page))


def render_markdown(page: Page, *, folder: str) -> str:
    """Return a page as Markdown; its plots and pictures are files in ``folder/``."""
    return _render("page.md.j2", page, folder=folder, pictures=_shrink_pictures(page))


def write_page(page: Page, folder: Path, *, name: str) -> tuple[Path, Path]:
    """Write ``NAME.html``, ``NAME.md`` and its plots and pictures in ``NAME/`` into a folder.

    Plots and pictures that an earlier page left there and this one does not name are removed.

    Returns:
        The paths of HTML and Markdown.
    """
    plots, pictures = _draw_plots(page), _shrink_pictures(page)
    files = plots | dict(pictures.values())
    own = folder / name
    own.mkdir(parents=True, exist_ok=True)
    for file, content in files.items():
        (own / file).write_bytes(content)
    for path in own.iterdir():
        if path.suffix in (".jpg", ".png", ".svg") and path.name not in files:
            path.unlink()
    html, markdown = folder / f"{name}.html", folder / f"{name}.md"
    write_text(html, _render("page.html.j2", page, plots=plots, pictures=pictures))
    write_text(markdown, _render("page.md.j2", page, folder=name, pictures=pictures))
    return html, markdown


def list_plots(page: Page) -> list[Plot]:
    """Return every plot of a page in its order."""
    return [plot for part in page.parts for one in _walk(part.blocks) for plot in one.plots]


def _walk(blocks: Iterable[Block | Table]) -> Iterator[Block]:
    for one in blocks:
        if isinstance(one, Block):
            yield one
            yield from _walk(one.blocks)


def _draw_plots(page: Page) -> dict[str, bytes]:
    from groupwise.evaluation.report.plots import render_svg

    return {f"{one.name}.svg": render_svg(one.draw, one.size) for one in list_plots(page)}


def _shrink_pictures(page: Page) -> dict[Path, tuple[str, bytes]]:
    """Return each picture that can be opened as a JPEG 880 pixels wide, with its file's name."""
    found: dict[Path, tuple[str, bytes]] = {}
    cards = [card for part in page.parts for one in _walk(part.blocks) for card in one.cards]
    for path in dict.fromkeys(card.picture for card in cards if card.picture is not None):
        try:
            picture = open_picture(path)
        except DataError:
            continue
        picture.thumbnail((PICTURE_WIDTH, PICTURE_WIDTH))
        buffer = io.BytesIO()
        picture.save(buffer, "JPEG", quality=78, optimize=True)
        found[path] = f"picture-{len(found) + 1:02d}.jpg", buffer.getvalue()
    return found


def _render(template: str, page: Page, **values: Any) -> str:
    say = Phrases(page.language).say
    return replace_controls(_load_template(template).render(page=page, say=say, **values))


@cache
def _load_template(name: str) -> Template:
    is_html = name.endswith(".html.j2")
    environment: Any = Environment(
        loader=PackageLoader("groupwise.evaluation.report"),
        autoescape=is_html,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"rich": _mark_html if is_html else escape_cell, "code": write_code}
    environment.globals |= {"base64": b64encode, "sha256": sha256}
    return environment.get_template(name)


_CODE = re.compile(f"{CODE[0]}([^{CODE[0]}{CODE[1]}]*){CODE[1]}")
_ENTITY = re.compile(r"&(?=#?\w+;)")
_BLOCK_START = re.compile(r"(?=#{1,6}(?:\s|$)|>|[-+](?:\s|$)|-{3}|~{3})|^\d{1,9}(?=[.)](?:\s|$))")
"""Before what would begin a heading, a quotation, a list, a rule or a fence of Markdown."""
_CONTROLS: dict[int, int] = {
    **{code: 0x2400 + code for code in range(0x20) if code not in (0x09, 0x0A)},
    **dict.fromkeys((*range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)), 0xFFFD),
    **dict.fromkeys(map(ord, CODE), 0xFFFD),
}
"""What stands for characters that command a terminal, turn a text around or would mark code."""


def replace_controls(text: str) -> str:
    """Return text whose characters that command a terminal or turn a text around are seen."""
    return text.translate(_CONTROLS)


def _mark_html(text: str) -> Markup:
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))


def write_code(text: str) -> str:
    """Return text as code, or as it is where code would end within it or a cell would."""
    return _escape(text) if set(text) & set("`|\r\n") or not text.strip() else f"`{text}`"


def escape_cell(text: object) -> str:
    """Return Markdown of one line that shows a text as it is, wherever it stands, but for code."""
    parts = enumerate(_CODE.split(str(text)))
    line = "".join(write_code(one) if place % 2 else _escape(one) for place, one in parts)
    line = line.strip(" ")
    begins = _BLOCK_START.match(line)
    return line if begins is None else f"{begins[0]}\\{line[begins.end() :]}"


def _escape(text: str) -> str:
    clean = _ENTITY.sub("&amp;", re.sub(r"[ \t\r\n]+", " ", text))
    for mark in "\\`*_|[]$":
        clean = clean.replace(mark, f"\\{mark}")
    return clean.replace("<", "&lt;")
