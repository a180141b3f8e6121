"""Sections that a recipe adds to the report of its runs: words and tables, as data.

A step leaves them as ``evaluate/sections.json``. Their texts are shown as they are, never as
markup; how they look is the job of the templates.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from groupwise.core import EvaluationError, write_json


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class Table:
    """A table; its first column names the rows.

    Attributes:
        title: what it is about; may be empty.
        head: the title of each column, at least one.
        rows: cells as they are shown, as many in each row as in ``head``; what follows a line
            break in a cell is a note to its value.

    Raises:
        ValueError: if there are no columns, or a row has more or fewer cells than the head.
    """

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        widths = {len(self.head), *map(len, self.rows)}
        if len(widths) > 1 or 0 in widths:
            raise ValueError(f"rows of {sorted(widths)} cells in the table {self.title!r}")


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class Tile:
    """A number that the page begins with, large and before the accuracy.

    Attributes:
        value: the number as it is shown.
        text: what it is.
        note: its interval and size, or the like; may be empty.
    """

    value: str
    text: str
    note: str = ""


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class Section:
    """A part of a report with a title of its own.

    Attributes:
        title: heading, and its link at the top of the page.
        text: one paragraph; may be empty.
        tables: shown below the text.
        tiles: numbers of this section at the top of the page.
    """

    title: str
    text: str = ""
    tables: tuple[Table, ...] = ()
    tiles: tuple[Tile, ...] = ()


_SECTIONS = TypeAdapter(tuple[Section, ...])


def write_sections(path: Path, sections: Iterable[Section]) -> None:
    """Replace ``path`` by a JSON list of sections."""
    write_json(path, [asdict(section) for section in sections])


def read_sections(path: Path) -> tuple[Section, ...]:
    """Return the sections of a file.

    Raises:
        EvaluationError: if the file is missing or is not a list of sections.
    """
    try:
        return _SECTIONS.validate_json(path.read_bytes())
    except OSError as error:
        raise EvaluationError(f"cannot read {path} ({error.strerror})") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise EvaluationError(
            f"{path} is not a list of sections ({place}: {first['msg']})",
            fix="run the step that writes it again",
        ) from error
