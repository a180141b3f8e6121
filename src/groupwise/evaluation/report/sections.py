"""Sections that a recipe adds to the report of its runs: words and tables, as data.

A step leaves them as ``evaluate/sections.json``. Their texts are shown as they are, never as
markup; how they look is the job of the templates.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from groupwise.core import EvaluationError, write_json
from groupwise.evaluation.page import Table, Tile


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
    rows = _SECTIONS.dump_python(tuple(sections), mode="json", exclude_defaults=True)
    write_json(path, rows)


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
