"""Tables that several reports have, and the sections that a recipe adds to the report of a run.

Of numbers that are already measured nothing is computed here but the total of a column.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import TypeAdapter

from groupwise.core import EvaluationError, write_json
from groupwise.evaluation.predictions import Language, exact, find_measure, read_as
from groupwise.evaluation.report.page import Cell, Table, Tile
from groupwise.evaluation.report.phrases import (
    DASH,
    Phrases,
    format_count,
    format_interval,
    format_share,
    format_value,
)

if TYPE_CHECKING:
    from groupwise.evaluation.metrics import Confusion, Metric


@exact
@dataclass(frozen=True, slots=True)
class Section:
    """A part of a run's report that a step leaves in ``evaluate/sections.json``.

    Its texts are shown as they are, never as markup.
    """

    title: str  # heading, and its link at the top of the page
    text: str = ""  # one paragraph; may be empty
    tables: tuple[Table, ...] = ()  # shown below the text
    tiles: tuple[Tile, ...] = ()  # numbers of this section at the top of the page
    language: Language | None = None  # of the reports that it is for; None: of all


_SECTIONS = TypeAdapter(tuple[Section, ...])


def write_sections(path: Path, sections: Iterable[Section]) -> None:
    """Replace ``path`` by a JSON list of sections."""
    rows = _SECTIONS.dump_python(tuple(sections), mode="json", exclude_defaults=True)
    write_json(path, rows)


def read_sections(path: Path) -> tuple[Section, ...]:
    """Return the sections of a file."""
    return read_as(path, _SECTIONS)


@dataclass(frozen=True, slots=True)
class Scale:
    """The ends of the values that one set of tables shows; ``sign`` is that of their measure."""

    low: float
    high: float
    sign: Literal[1, -1] = 1

    def shade_value(self, value: float) -> str:
        """Return the style of a value: the better, the darker blue."""
        width = self.high - self.low
        worst = self.low if self.sign > 0 else self.high
        return _paint(abs(value - worst) / width if width > 0 else 0.0)

    def shade_difference(self, value: float) -> str:
        """Return the style of a difference: a gain is blue, a loss orange, 0 white."""
        top = max(abs(self.low), abs(self.high))
        if value == 0 or top == 0:
            return "background:#ffffff;color:#1f2328"
        return _paint(abs(value) / top, is_loss=self.sign * value < 0)


def _paint(share: float, *, is_loss: bool = False) -> str:
    """Return background and a text colour that can be read on it, for a share in [0, 1]."""
    full = (201, 104, 22) if is_loss else (31, 98, 168)
    red, green, blue = (round(255 + (0.06 + 0.86 * share) * (one - 255)) for one in full)
    is_light = 0.299 * red + 0.587 * green + 0.114 * blue > 145
    text = "#1f2328" if is_light else "#ffffff"
    return f"background:#{red:02x}{green:02x}{blue:02x};color:{text}"


def describe_metric(metric: "Metric") -> str:
    """Return a number with its 95 % interval, such as ``25.0 % (12.5-62.5 %)``."""
    return f"{format_value(metric)} ({format_interval(metric)})"


def make_tile(metric: "Metric", text: str) -> Tile:
    """Return a number for the top of the page, with its 95 % interval and its size."""
    note = f"{format_interval(metric)} (95 %), n = {format_count(metric.n)}"
    return Tile(format_value(metric), text, note)


def show_metric(metric: "Metric | None", *, is_sized: bool = False) -> str:
    """Return a number with its 95 % interval, and its size, as its note; a dash without one."""
    if metric is None:
        return DASH
    size = f", n = {format_count(metric.n)}" if is_sized else ""
    return f"{format_value(metric)}\n{format_interval(metric)}{size}"


def tabulate_metrics(
    rows: Iterable[tuple[str | Cell, Mapping[str, "Metric"]]],
    columns: Mapping[str, str],
    *,
    head: str,
    is_sized: bool = False,
    count: str = "",
    title: str = "",
) -> Table:
    """Return a row of measures per policy or subset.

    Args:
        rows: what each row is, with its metrics by measure.
        columns: the heading of each measure that has a column.
        head: of the first column.
        is_sized: whether each metric shows its number of items.
        count: the measure whose number of items is the last column, where a row has none of it that
            of the first measure that it has; empty: no such column.
        title: of the table.
    """
    shown: list[tuple[str | Cell, ...]] = []
    for name, metrics in rows:
        known = [metrics[one] for one in (count, *columns) if one in metrics]
        sizes = [format_count(known[0].n) if known else DASH] if count else []
        cells = [show_metric(metrics.get(one), is_sized=is_sized) for one in columns]
        shown.append((name, *cells, *sizes))
    heads = (head, *columns.values(), *(["n"] if count else []))
    return Table(title, heads, tuple(shown), kind="headline")


def tabulate_policies(
    metrics: "Sequence[Metric]", columns: Mapping[str, str], *, phrases: Phrases, title: str = ""
) -> Table:
    """Return a row per policy, in their order, with the measure of each column by its title.

    Raises:
        EvaluationError: if the metrics are of several splits.
    """
    splits = sorted({metric.split for metric in metrics})
    if len(splits) > 1:
        raise EvaluationError("one table holds one split", got=", ".join(splits))
    found: dict[str, dict[str, Metric]] = {}
    for metric in metrics:
        found.setdefault(metric.policy, {})[metric.measure] = metric
    rows = [(phrases.title_policy(name), found[name]) for name in phrases.policies.sort(found)]
    titles = {measure: heading for heading, measure in columns.items()}
    head = phrases.say("policy")
    return tabulate_metrics(rows, titles, head=head, count="accuracy", title=title)


@exact
@dataclass(frozen=True, slots=True)
class _TrainableRow:
    part: str
    num_trainable: int
    num_frozen: int


def tabulate_trainable(path: Path, *, phrases: Phrases) -> Table:
    """Return what trained and what was frozen, in weights, from a step's ``trainable.json``.

    Raises:
        DataError: if the file is missing or is not a list.
        EvaluationError: if it is not such a table.
    """
    parts = read_as(path, TypeAdapter(list[_TrainableRow]))
    total = sum(row.num_trainable for row in parts), sum(row.num_frozen for row in parts)
    rows: list[tuple[str, ...]] = []
    for row in (*parts, _TrainableRow("total", *total)):
        kind, _, number = row.part.rpartition(" ")  # blocks have a number
        is_block = bool(kind) and number.isdecimal()
        name = phrases.title("part", kind if is_block else row.part)
        counts = map(format_count, (row.num_trainable, row.num_frozen))
        rows.append((f"{name} {number}" if is_block else name, *counts))
    return Table("", phrases.say_each("part", "trainable", "frozen"), tuple(rows))


def tabulate_confusion(title: str, found: "Confusion", phrases: Phrases) -> Table:
    """Return how often each truth got each answer; long labels have numbers for their columns."""
    labels = heads = found.labels
    if any(len(label) > 12 for label in labels):
        heads = tuple(str(place) for place in range(1, len(labels) + 1))
        labels = tuple(f"{place} · {one}" for place, one in zip(heads, labels, strict=True))
    corner = f"{phrases.say('truth')} \u2193 {phrases.say('answer')} \u2192"
    rows: list[tuple[Cell, ...]] = []
    for label, counts in zip(labels, found.counts, strict=True):
        cells = [Cell(label)]
        for count in counts:
            share = count / sum(counts) if count else 0.0
            note = format_share(share) if count else ""
            cells.append(Cell(format_count(count), note, style=_paint(share)))
        rows.append(tuple(cells))
    return Table(title, (corner, *heads, phrases.say("invalid_answer")), tuple(rows), kind="heat")


def tell_calibration(found: "Mapping[str, Metric]", phrases: Phrases) -> str:
    """Return Brier score and calibration error in words, as far as they were measured."""
    return phrases.join(
        f"{phrases.name_measure(measure)} {format_value(found[measure.name])}"
        for measure in map(find_measure, ("brier", "ece"))
        if measure is not None and measure.name in found
    )
