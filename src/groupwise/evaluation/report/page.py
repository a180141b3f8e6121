"""Pages of reports as data, written as one HTML file and as Markdown with its pictures.

Run reports, comparisons, studies and judge reports are built of these blocks. Rendering changes no
number and reads no file but pictures.
"""

import base64
import hashlib
import io
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from pydantic import ConfigDict, with_config

from groupwise.core import DataError, open_picture, write_text
from groupwise.evaluation.report.phrases import CODE, Language, Level, Phrases

PICTURE_WIDTH = 880
_exact = with_config(ConfigDict(extra="forbid"))
"""Marks what files hold: they have no other keys."""


@_exact
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


@_exact
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


@_exact
@dataclass(frozen=True, slots=True)
class Tile:
    """A large number at the top; ``note`` is its interval, ``is_good`` never what chance gives."""

    value: str
    text: str
    note: str = ""
    is_good: bool = False


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot: ``draw`` draws it on axes of ``size`` inches, ``alt`` is its content in words.

    ``name`` is its file name without an ending, ``caption`` how to read it.
    """

    name: str
    title: str
    alt: str
    draw: Callable[[Any], None]
    size: tuple[float, float]
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the reader must know before any number; ``source`` is the file it comes from."""

    level: Level
    text: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph; ``kind`` is its class: ``lead`` (how to read what follows) or ``absent``."""

    text: str
    kind: str = "lead"


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading within a part."""

    text: str


@dataclass(frozen=True, slots=True)
class Bullets:
    """A list of sentences."""

    points: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Verbatim:
    """Text to be shown as it is, line by line."""

    text: str


@dataclass(frozen=True, slots=True)
class Tables:
    """Tables side by side; wide ones below each other."""

    tables: tuple[Table, ...]
    is_wide: bool = False


@dataclass(frozen=True, slots=True)
class Plots:
    """Plots side by side; ``kind`` is a class of the style sheet (``small``, ``wide``)."""

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
    """An item with its picture and what is drawn on it.

    ``pills`` are (class, text) of the words that stand out, ``said`` is the rest; ``gone`` stands
    for a picture that cannot be shown.
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

    cards: tuple[Card, ...]


@dataclass(frozen=True, slots=True)
class Fold:
    """Blocks that are shown on demand."""

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
    footer: tuple[Block, ...] = ()  # where it comes from
    is_sortable: bool = False  # whether a click on the head of a column sorts its table


def render_html(page: Page) -> str:
    """Return a page with its style, plots and pictures inside."""
    return _write_html(page, _draw_plots(page), _shrink_pictures(page))


def render_markdown(page: Page, *, folder: str) -> str:
    """Return a page as Markdown; its plots and pictures are files in ``folder/``."""
    return _write_markdown(page, folder, _shrink_pictures(page))


def write_page(page: Page, folder: Path, *, name: str) -> tuple[Path, Path]:
    """Write ``NAME.html``, ``NAME.md`` and its plots and pictures in ``NAME/`` into a folder.

    Plots and pictures that an earlier page left there and this one does not name are removed.

    Returns:
        The paths of HTML and Markdown.
    """
    plots, pictures = _draw_plots(page), _shrink_pictures(page)
    files = {f"{plot}.svg": svg for plot, svg in plots.items()}
    files |= {f"picture-{n:02d}.jpg": jpeg for n, jpeg in enumerate(pictures.values(), start=1)}
    own = folder / name
    own.mkdir(parents=True, exist_ok=True)
    for file, content in files.items():
        (own / file).write_bytes(content)
    for path in own.iterdir():
        if path.suffix in (".jpg", ".png", ".svg") and path.name not in files:
            path.unlink()
    html, markdown = folder / f"{name}.html", folder / f"{name}.md"
    write_text(html, _write_html(page, plots, pictures))
    write_text(markdown, _write_markdown(page, name, pictures))
    return html, markdown


def list_plots(page: Page) -> list[Plot]:
    """Return every plot of a page in its order."""
    return [plot for one in _list_blocks(page) if isinstance(one, Plots) for plot in one.plots]


def _list_blocks(page: Page) -> Iterator[Block]:
    """Yield every block of a page, those of a fold in its place."""
    waiting = [block for part in page.parts for block in part.blocks]
    while waiting:
        block = waiting.pop(0)
        if isinstance(block, Fold):
            waiting = [*block.blocks, *waiting]
        else:
            yield block


def _draw_plots(page: Page) -> dict[str, bytes]:
    from groupwise.evaluation.report.plots import render_svg

    return {one.name: render_svg(one.draw, one.size) for one in list_plots(page)}


def _shrink_pictures(page: Page) -> dict[Path, bytes]:
    """Return each picture that can be opened, once and in order, as a JPEG 880 pixels wide."""
    cards = (card for one in _list_blocks(page) if isinstance(one, Cards) for card in one.cards)
    found: dict[Path, bytes] = {}
    for path in dict.fromkeys(card.picture for card in cards if card.picture is not None):
        try:
            picture = open_picture(path)
        except DataError:
            continue
        picture.thumbnail((PICTURE_WIDTH, PICTURE_WIDTH))
        buffer = io.BytesIO()
        picture.save(buffer, "JPEG", quality=78, optimize=True)
        found[path] = buffer.getvalue()
    return found


def _write_html(page: Page, plots: Mapping[str, bytes], pictures: Mapping[Path, bytes]) -> str:
    def embed(content: bytes, kind: str) -> str:
        return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"

    # A page may load what stands in it and, of scripts, run this one.
    script = (Path(__file__).parent / "templates/sort.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    allowed = f"img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return _render(
        "page.html.j2",
        page,
        plots={name: embed(svg, "svg+xml") for name, svg in plots.items()},
        pictures={path: embed(jpeg, "jpeg") for path, jpeg in pictures.items()},
        script=Markup(script),
        content_policy=f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'",
    )


def _write_markdown(page: Page, folder: str, pictures: Mapping[Path, bytes]) -> str:
    return _render(
        "page.md.j2",
        page,
        plots={one.name: f"{folder}/{one.name}.svg" for one in list_plots(page)},
        pictures={
            path: f"{folder}/picture-{n:02d}.jpg" for n, path in enumerate(pictures, start=1)
        },
    )


def _render(template: str, page: Page, **values: Any) -> str:
    found = _load_environment(".html" in template).get_template(template)
    return replace_controls(found.render(page=page, say=Phrases(page.language).say, **values))


@cache
def _load_environment(is_html: bool) -> Environment:
    environment: Any = Environment(
        loader=PackageLoader("groupwise.evaluation.report"),
        autoescape=is_html,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(rich=_mark_html if is_html else _mark_markdown)
    environment.filters.update(
        cell=escape_cell, code=write_code, form=lambda one: type(one).__name__
    )
    return environment


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


def write_code(text: str) -> str:
    """Return text as code, or as it is where code would end within it or a cell would."""
    return _escape(text) if set(text) & set("`|\r\n") or not text.strip() else f"`{text}`"


def escape_cell(text: object) -> str:
    """Return text that stays in one Markdown table cell and is shown as it is."""
    return _begin_no_block(_escape(str(text)).strip(" "))


def _mark_html(text: str) -> Markup:
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))


def _mark_markdown(text: str) -> str:
    """Return text that is shown as it is, but for its code; no code ends early or spans lines."""
    parts = [
        write_code(part) if place % 2 else _escape(part)
        for place, part in enumerate(_CODE.split(text))
    ]
    return _begin_no_block("".join(parts).strip(" "))


def _begin_no_block(text: str) -> str:
    """Return a line that is a paragraph, whatever it begins with."""
    begins = _BLOCK_START.match(text)
    return text if begins is None else f"{begins[0]}\\{text[begins.end() :]}"


def _escape(text: str) -> str:
    clean = _ENTITY.sub("&amp;", re.sub(r"[ \t\r\n]+", " ", text))
    for mark in "\\`*_|[]$":
        clean = clean.replace(mark, f"\\{mark}")
    return clean.replace("<", "&lt;")
