"""Pages of reports as data, written as one HTML file and as Markdown with its pictures.

Run reports, comparisons, studies and judge reports are built of these blocks, tables of metrics and
the sections that a recipe adds to the report of a run. Texts are shown as they are, but for what is
marked as code. Rendering changes no number and reads only pictures.
"""

import io
import re
import warnings
from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup, escape
from pydantic import TypeAdapter

from groupwise.core import DataError, EvaluationError, open_picture, write_json, write_text
from groupwise.evaluation.alarms import Series
from groupwise.evaluation.metrics import Metric
from groupwise.evaluation.predictions import Language, Prediction, exact, read_as, shorten
from groupwise.evaluation.report import phrases as words
from groupwise.evaluation.report.phrases import Level, Phrases, format_count

PALETTE = ("#12856b", "#4a7fd4", "#c8502b", "#7a5bb5", "#a6761d", "#b5578f", "#3f8fa8")
_STYLE: Any = {
    **{"axes.edgecolor": "#b4bac2", "axes.grid": True, "font.size": 8.5},
    **{"axes.spines.right": False, "axes.spines.top": False, "grid.color": "#e6e8eb"},
    **{"legend.frameon": False, "svg.fonttype": "none", "svg.hashsalt": "groupwise"},
}


@exact
@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of a table."""

    text: str  # what it says
    note: str = ""  # a second, smaller line
    order: float | None = None  # what the column is sorted by; the text if None
    hint: str = ""  # more for those who point at it
    tag: str = ""  # a coloured word; its colour is the class ``tag_kind`` of the style sheet
    tag_kind: str = ""  # see there
    is_strong: bool = False  # stands out
    is_code: bool = False  # a digest or a key


@exact
@dataclass(frozen=True, slots=True)
class Table:
    """A table; of a cell that is a text, what follows a line break is a note to its value.

    No columns, or a row with more or fewer cells than the head, is a ValueError.
    """

    title: str  # what it is about; may be empty
    head: tuple[str, ...]  # the title of each column, at least one
    rows: tuple[tuple[str | Cell, ...], ...]  # as many cells in each as in ``head``
    num_heads: int = 1  # columns that name the row and are aligned left
    kind: str = ""  # classes of the style sheet (``matrix``, ``wrap``)

    def __post_init__(self) -> None:
        widths = {len(self.head), *map(len, self.rows)}
        if len(widths) > 1 or 0 in widths:
            raise ValueError(f"rows of {sorted(widths)} cells in the table {self.title!r}")


MetricRow = tuple[str | Cell, Mapping[str, Metric | None]]
Interval = tuple[str, str, float, float, float]
"""A row of a plot: its title, the numbers in words, a share or a difference, and its interval."""


@dataclass(frozen=True, slots=True)
class Plot:
    """Lines over steps or a row for each interval, drawn when the page is written."""

    name: str  # its file without an ending
    title: str
    lines: tuple[tuple[str, Series, str], ...] = ()  # titles (where several), values, colours
    axis: str = ""  # what steps, or values of intervals, are called
    are_shares: bool = False  # of which the axis ends at 1
    intervals: tuple[Interval, ...] = ()  # in place of lines

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches."""
        return (5.4, 0.8 + 0.26 * len(self.intervals)) if self.intervals else (3.8, 3.0)

    @property
    def alt(self) -> str:
        """Its content in words: the first and the last value of each line, or every interval."""
        form = words.format_plain
        told = [f"{x} {form(y.values[0])} → {form(y.values[-1])}".strip() for x, y, _ in self.lines]
        told += [f"{title} {text}" for title, text, *_ in self.intervals]
        return f"{self.title}: {'; '.join(told)}"


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
    boxes: tuple[Box, ...] = ()  # what the numbers say
    parts: tuple[Part, ...] = ()  # all the rest
    footer: tuple[Block | Table, ...] = ()  # where it comes from
    is_sortable: bool = False  # whether a click on the head of a column sorts its table


@exact
@dataclass(frozen=True, slots=True)
class Section:
    """A part of a run's report that a step leaves in ``evaluate/sections.json``.

    Its texts are shown as they are, never as markup.
    """

    title: str  # heading, and its link at the top of the page
    text: str = ""  # one paragraph; may be empty
    tables: tuple[Table, ...] = ()  # shown below the text
    is_first: bool = False  # stands above all others
    tiles: tuple[Any, ...] = ()  # of earlier versions; not shown, for the text has the numbers
    language: Language | None = None  # of the reports that it is for; None: of all


def write_sections(path: Path, sections: Iterable[Section]) -> None:
    """Replace ``path`` by a JSON list of sections."""
    shape = TypeAdapter(tuple[Section, ...])
    write_json(path, shape.dump_python(tuple(sections), mode="json", exclude_defaults=True))


def read_sections(path: Path) -> tuple[Section, ...]:
    """Return the sections of a file."""
    return read_as(path, tuple[Section, ...])


def describe_metric(metric: Metric) -> str:
    """Return a number with its 95 % interval, such as ``25.0 % (12.5-62.5 %)``."""
    return "{} ({})".format(*words.format_metric(metric))


def tabulate_metrics(
    rows: Iterable[MetricRow], columns: Mapping[str, str], *, head: str, title: str = ""
) -> Table:
    """Return a row of metrics by measure for each policy or subset, with the most items of one.

    ``columns`` has the title of each measure, ``head`` is that of the rows. Each value has its 95 %
    interval as a note, and its n where it is not that of its row.
    """
    shown: list[tuple[str | Cell, ...]] = []
    for name, metrics in rows:
        found = [metrics.get(measure) for measure in columns]
        num = max((one.n for one in found if one is not None), default=None)
        cells = list[str]()
        for one in found:
            size = f", n = {format_count(one.n)}" if one and one.n != num else ""
            cells.append("\n".join(words.format_metric(one)) + size if one else words.DASH)
        shown.append((name, *cells, words.DASH if num is None else format_count(num)))
    return Table(title, (head, *columns.values(), "n"), tuple(shown), kind="headline")


def tabulate_policies(
    metrics: Sequence[Metric], columns: Mapping[str, str], *, phrases: Phrases, title: str = ""
) -> Table:
    """Return a row per policy, in their order; ``columns`` has the title of each measure.

    Metrics of several splits are an EvaluationError.
    """
    if len(splits := sorted({one.split for one in metrics})) > 1:
        raise EvaluationError("one table holds one split", got=", ".join(splits))
    found: dict[str, dict[str, Metric]] = {}
    for metric in metrics:
        found.setdefault(metric.policy, {})[metric.measure] = metric
    rows: list[MetricRow] = []
    for name in phrases.policies.sort(found):
        known = phrases.policies.find(name)
        about = (words.mark_code(name), known.note_zh if phrases.language == "zh" else known.note)
        cell = Cell(phrases.title_policy(name), " · ".join(filter(None, about)))
        rows.append((cell, found[name]))
    return tabulate_metrics(rows, columns, head=phrases.say("policy"), title=title)


def tabulate_confusion(
    title: str, items: Iterable[Prediction], labels: Sequence[str], phrases: Phrases
) -> Table:
    """Return how often each truth got each answer; an invalid one is none of the labels."""
    counts = Counter((one.label, one.predicted) for one in items)
    corner = f"{phrases.say('truth')} \u2193 {phrases.say('answer')} \u2192"
    heads = (corner, *(shorten(one, 12) for one in labels), phrases.say("invalid_answer"))
    rows = ((x, *(format_count(counts[x, y]) for y in (*labels, None))) for x in labels)
    return Table(title, heads, tuple(rows))


def render_svg(plot: Plot) -> bytes:
    """Return an SVG whose text stays text; the same plot gives the same bytes."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from scipy.ndimage import uniform_filter1d

    with mpl.rc_context(_STYLE), warnings.catch_warnings():  # pyright: ignore[reportUnknownMemberType]
        # An SVG keeps its text: the reader's fonts draw what this machine has no glyphs for.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        num, figure = len(plot.intervals), Figure(figsize=plot.size, dpi=72)
        axes: Any = figure.add_subplot(xlabel=plot.axis)
        form = partial(words.format_points, decimals=0) if num else words.format_plain
        if plot.are_shares:
            form = partial(words.format_share, decimals=0)
        (axes.xaxis if num else axes.yaxis).set_major_formatter(lambda value, _: form(value))
        if num:
            values, lows, highs = np.array([ends for _, _, *ends in plot.intervals]).T
            look = {"color": PALETTE[0], "lw": 1.6, "ms": 4.5, "capsize": 2.5, "fmt": "o"}
            axes.errorbar(values, range(num), xerr=(values - lows, highs - values), **look)
            axes.set_yticks(range(num), [shorten(title, 34) for title, *_ in plot.intervals])
            axes.set_ylim(num - 0.5, -0.5)
            axes.locator_params("x", nbins=7)
            axes.axvline(0, color="#5b6470", lw=0 if plot.are_shares else 1)
        for title, line, color in plot.lines:
            look: dict[str, Any] = {"color": color, "label": shorten(title, 22)}
            values = np.asarray(line.values)
            if len(values) < 40:
                look |= {"lw": 1.6, "marker": "o", "ms": 3}
            else:  # many values stand faintly behind their moving mean over a twentieth of them
                axes.plot(line.steps, values, color=color, lw=0.9, alpha=0.28)
                values = uniform_filter1d(values, 2 * (len(values) // 40) + 1, mode="nearest")
            axes.plot(line.steps, values, **{"lw": 2, **look})
        if plot.lines:
            lowest = min(value for _, line, _ in plot.lines for value in line.values)
            axes.locator_params("x", nbins=6, integer=True)
            axes.locator_params("y", nbins=5)
            if plot.are_shares:
                axes.set_ylim(max(0.0, np.floor((lowest - 0.1) * 5) / 5) - 0.01, 1.02)
            elif lowest >= 0:
                axes.set_ylim(bottom=0)
        if any(title for title, *_ in plot.lines):
            axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2, handlelength=1.4)
        # Laid out here, by the SVG's own measures: by a layout of the figure's own, savefig draws
        # everything twice.
        FigureCanvasSVG(figure)
        ConstrainedLayoutEngine().execute(figure)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue()


def write_page(page: Page, folder: Path, *, name: str) -> tuple[Path, Path]:
    """Write ``NAME.html``, ``NAME.md`` and, in ``NAME/``, plots and pictures; return both paths.

    Plots, and pictures at most 880 pixels wide, stand in the HTML itself, too. Those that an
    earlier page left in ``NAME/`` and this one does not name are removed.
    """
    own, pictures = folder / name, dict[Path, str]()
    blocks = [one for part in page.parts for one in _walk(part.blocks)]
    files = {f"{plot.name}.svg": render_svg(plot) for one in blocks for plot in one.plots}
    named = (card.picture for one in blocks for card in one.cards if card.picture is not None)
    for path in dict.fromkeys(named):
        with suppress(DataError):  # one that cannot be opened is told in its place
            picture = open_picture(path)
            picture.thumbnail((880, 880))
            picture.save(buffer := io.BytesIO(), "JPEG", quality=78, optimize=True)
            pictures[path] = f"picture-{len(pictures) + 1:02d}.jpg"
            files[pictures[path]] = buffer.getvalue()
    own.mkdir(parents=True, exist_ok=True)
    for file, content in files.items():
        (own / file).write_bytes(content)
    for path in own.iterdir():
        if path.suffix in (".jpg", ".png", ".svg") and path.name not in files:
            path.unlink()
    known = {"say": Phrases(page.language).say, "folder": name, "files": files}
    written = folder / f"{name}.html", folder / f"{name}.md"
    for path in written:
        text = _load_template(path.suffix).render(page=page, pictures=pictures, **known)
        write_text(path, replace_controls(text))
    return written


def _walk(blocks: Iterable[Block | Table]) -> Iterator[Block]:
    for one in blocks:
        if isinstance(one, Block):
            yield one
            yield from _walk(one.blocks)


@cache
def _load_template(suffix: str) -> Template:
    is_html = suffix == ".html"
    environment: Any = Environment(
        loader=PackageLoader("groupwise.evaluation.report"),
        autoescape=is_html,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"rich": _mark_html if is_html else escape_cell, "code": write_code}
    environment.filters["cell"] = lambda x: x if isinstance(x, Cell) else Cell(*x.split("\n", 1))
    environment.globals |= {"base64": b64encode, "sha256": sha256}
    return environment.get_template(f"page{suffix}.j2")


_CODE = re.compile(f"{words.CODE[0]}([^{words.CODE[0]}{words.CODE[1]}]*){words.CODE[1]}")
_BLOCK_START = re.compile(r"^(?=#{1,6}(?:\s|$)|>|[-+](?:\s|$)|-{3}|~{3})|^\d{1,9}(?=[.)](?:\s|$))")
"""Before what would begin a heading, a quotation, a list, a rule or a fence of Markdown."""
_CONTROLS: dict[int, int] = {
    **{code: 0x2400 + code for code in range(0x20) if code not in (0x09, 0x0A)},
    **dict.fromkeys((*range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)), 0xFFFD),
    **dict.fromkeys(map(ord, words.CODE), 0xFFFD),
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
    return _BLOCK_START.sub(r"\g<0>\\", line.strip(" "))


def _escape(text: str) -> str:
    line = re.sub(r"[ \t\r\n]+", " ", text)
    return re.sub(r"[\\`*_|[\]$]|&(?=#?\w+;)", r"\\\g<0>", line).replace("<", "&lt;")
