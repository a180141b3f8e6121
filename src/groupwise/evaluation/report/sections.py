"""Sections that a recipe adds to the report of its runs: words and tables, as data.

A step leaves them as ``evaluate/sections.json``. Their texts are shown as they are, never as
markup. Of numbers that are already measured nothing is computed here but the total of a column.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from groupwise.core import EvaluationError, write_json
from groupwise.evaluation.metrics import Metric
from groupwise.evaluation.page import Language, Table, Tile, Words, tabulate_metrics
from groupwise.evaluation.page.numbers import format_count, format_interval, format_value
from groupwise.evaluation.predictions import exact, read_as


@exact
@dataclass(frozen=True, slots=True)
class Section:
    """A part of a report with a title of its own.

    Attributes:
        title: heading, and its link at the top of the page.
        text: one paragraph; may be empty.
        tables: shown below the text.
        tiles: numbers of this section at the top of the page.
        language: of the reports that it is for; None: of all.
    """

    title: str
    text: str = ""
    tables: tuple[Table, ...] = ()
    tiles: tuple[Tile, ...] = ()
    language: Language | None = None

    def is_for(self, language: Language) -> bool:
        """Whether a report in this language shows it."""
        return self.language in (None, language)


_SECTIONS = TypeAdapter(tuple[Section, ...])


def write_sections(path: Path, sections: Iterable[Section]) -> None:
    """Replace ``path`` by a JSON list of sections."""
    rows = _SECTIONS.dump_python(tuple(sections), mode="json", exclude_defaults=True)
    write_json(path, rows)


def read_sections(path: Path) -> tuple[Section, ...]:
    """Return the sections of a file.

    Raises:
        DataError: if the file is missing or is not a list.
        EvaluationError: if it is not one of sections.
    """
    return read_as(path, _SECTIONS)


@exact
@dataclass(frozen=True, slots=True)
class _TrainableRow:
    part: str
    num_trainable: int
    num_frozen: int


_TRAINABLE = TypeAdapter(list[_TrainableRow])


def describe_metric(metric: Metric) -> str:
    """Return a number with its 95 % interval, such as ``25.0 % (12.5-62.5 %)``."""
    return f"{format_value(metric)} ({format_interval(metric)})"


def make_tile(metric: Metric, text: str) -> Tile:
    """Return a number for the top of the page, with its 95 % interval and its size."""
    note = f"{format_interval(metric)} (95 %), n = {format_count(metric.n)}"
    return Tile(format_value(metric), text, note)


def tabulate_policies(
    metrics: Sequence[Metric], columns: Mapping[str, str], *, words: Words, title: str = ""
) -> Table:
    """Return a row per policy: measures, each with its interval, and the number of its items.

    Args:
        metrics: of one split; a measure that a policy lacks is a dash.
        columns: the measure of each column, by the column's title.
        words: of the table's language, with the policies in their order.
        title: of the table.

    Raises:
        EvaluationError: if the metrics are of several splits.
    """
    splits = sorted({metric.split for metric in metrics})
    if len(splits) > 1:
        raise EvaluationError("one table holds one split", got=", ".join(splits))
    found: dict[str, dict[str, Metric]] = {}
    for metric in metrics:
        found.setdefault(metric.policy, {})[metric.measure] = metric
    return tabulate_metrics(
        [(words.title_policy(name), found[name]) for name in words.policies.sort(found)],
        {measure: heading for heading, measure in columns.items()},
        head=words.label("policy"),
        count="accuracy",
        title=title,
    )


def tabulate_trainable(path: Path, *, words: Words, title: str = "") -> Table:
    """Return what trained and what was frozen, in weights, from a step's ``trainable.json``.

    Args:
        path: the file.
        words: of the table's language.
        title: of the table.

    Raises:
        EvaluationError: if the file is missing or is not such a table.
    """
    parts = read_as(path, _TRAINABLE)
    total = _TrainableRow(
        "total", sum(row.num_trainable for row in parts), sum(row.num_frozen for row in parts)
    )
    rows = [
        (_title_part(row.part, words), *map(format_count, (row.num_trainable, row.num_frozen)))
        for row in (*parts, total)
    ]
    return Table(title, words.labels("part", "trainable", "frozen"), tuple(rows))


def _title_part(part: str, words: Words) -> str:
    """Return what a part of a model is called; blocks have a number."""
    kind, _, number = part.rpartition(" ")
    is_block = bool(kind) and number.isdecimal()
    return f"{words.title('parts', kind)} {number}" if is_block else words.title("parts", part)
