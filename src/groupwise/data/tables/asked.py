"""Rows to be answered, not learned from: no label, split or cluster is needed."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groupwise.core import DataError, Example
from groupwise.data.drops import DropLog
from groupwise.data.tables.files import find_index, read_table_rows
from groupwise.data.tables.rows import RowReader, list_picture_paths
from groupwise.data.tables.settings import TableSettings
from groupwise.data.tables.sources import SourceRow
from groupwise.data.tables.templates import is_template
from groupwise.data.tables.values import UnusableRowError, clean_value

_GIVEN = "_pictures"
_FILE = "_file"
_UNASKED = ("answer", "target", "split", "cluster", "id")


@dataclass(frozen=True, slots=True)
class AskedRow:
    """A row of a file.

    Attributes:
        where: file and line.
        values: JSON values by column, without those of pictures; ``_file`` is the file's name.
        pictures: files that the row names, in order.
    """

    where: str
    values: Mapping[str, Any]
    pictures: tuple[Path, ...]


def read_asked_rows(
    path: Path, *, pictures: Sequence[str] = (), encoding: str | None = None
) -> tuple[list[AskedRow], DropLog]:
    """Return the rows of a file, or of the one table in a folder, and those that are unreadable.

    Args:
        path: JSONL, JSON, CSV, TSV or Parquet, or a folder with one JSONL or CSV file.
        pictures: columns with paths of pictures, relative to the file; a row may lack them.
        encoding: of texts; None: it is found out.

    Raises:
        DataError: if there is no table.
    """
    index = find_index(path) if path.is_dir() else path
    drops = DropLog()
    found: list[AskedRow] = []
    for row in read_table_rows(index, drops, encoding=encoding):
        source = _place_row(row.values, index.parent)
        values = {k: clean_value(v) for k, v in row.values.items() if k not in pictures}
        values[_FILE] = index.name.partition(".")[0]
        if _is_unicode(values):
            found.append(AskedRow(row.where, values, tuple(list_picture_paths(source, pictures))))
        else:
            drops.add("text is not Unicode", row.where)
    return found, drops


def ask_about_row(
    settings: TableSettings, values: Mapping[str, Any], pictures: Sequence[Path], folder: Path
) -> Example:
    """Return what a row asks, without a label.

    Args:
        settings: what the columns mean.
        values: by column; the files of pictures are never taken from them.
        pictures: files in order.
        folder: for pictures that are stored.

    Raises:
        DataError: if a column is missing, or the pictures are not those that are needed.
    """
    shown = [name for name in settings.columns.pictures if not is_template(name)]
    named = [name for name in shown if name in values]
    if named:
        raise DataError(f"the row names the picture {named[0]}", fix="give it beside the row")
    if bool(pictures) != bool(settings.columns.pictures):
        needed = "at least one" if settings.columns.pictures else "none"
        raise DataError("a row has other pictures", got=len(pictures), expected=needed)
    given: dict[str, Any] = {"pictures": (_GIVEN,) if pictures else (), "fields": {}}
    columns = settings.columns.model_copy(update={**dict.fromkeys(_UNASKED), **given})
    reader = RowReader(settings.model_copy(update={"columns": columns}), folder, None)
    row = _place_row({**values, _GIVEN: [str(path.absolute()) for path in pictures]}, folder)
    try:
        return reader.read(row).example
    except UnusableRowError as error:
        raise DataError(f"{error.reason} ({error.detail})") from None


def _place_row(values: Mapping[str, Any], folder: Path) -> SourceRow:
    return SourceRow(
        values=values,
        where="",
        source="",
        file=str(values.get(_FILE, "")),
        folder=folder,
        split="train",
        is_test_part=False,
    )


def _is_unicode(values: Mapping[str, Any]) -> bool:
    try:
        json.dumps(values, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True
