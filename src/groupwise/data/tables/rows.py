"""Reads what one row says: prompt, answer, pictures, cluster, split and target."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from groupwise.core import ROW_FIELD, Example, Picture, make_example
from groupwise.data.tables.chats import read_prompt, read_target
from groupwise.data.tables.pictures import UnusableRowError, decode_picture, store_bytes
from groupwise.data.tables.settings import TableSettings
from groupwise.data.tables.sources import TEST_PART, SourceRow
from groupwise.data.tables.templates import is_template
from groupwise.data.tables.values import (
    as_mapping,
    clean_value,
    read_list,
    read_text,
    read_value,
    require_text,
)

ReadAnswer = Callable[[str], str | None]
"""Returns an answer as it is compared, or None if no completion can give it."""


@dataclass(frozen=True, slots=True)
class Item:
    """A usable row.

    Attributes:
        example: what it asks.
        content: digest of prompt and pictures: two rows with the same one ask the same.
        split: that it is of as given.
        is_test_part: whether its publisher calls it a test, whatever it is used for.
        target: what the warm-up teaches, or None.
        name: the user's own name of it, or None.
        row: where it was found.
    """

    example: Example
    content: str
    split: str
    is_test_part: bool
    target: str | None
    name: str | None
    row: SourceRow


def list_picture_paths(row: SourceRow, columns: Sequence[str]) -> list[Path]:
    """Return the files that a row names as its pictures, as far as it can be read."""
    try:
        values = [value for column in columns for value in read_list(row, column)]
    except UnusableRowError:
        return []
    return [row.folder / name for value in values if (name := _find_name(value))]


class RowReader:
    """Reads rows as a mapping of columns says.

    Args:
        settings: the mapping.
        folder: for pictures that rows hold as bytes.
        read_answer: None: any text can be an answer.
    """

    def __init__(
        self, settings: TableSettings, folder: Path, read_answer: ReadAnswer | None
    ) -> None:
        self._settings = settings
        self._columns = settings.columns
        self._folder = folder
        self._read_answer = read_answer
        self._splits = {
            value.casefold(): split for split, values in settings.splits.items() for value in values
        }
        self._decoded: dict[Path, Picture] = {}

    def read(self, row: SourceRow) -> Item:
        """Return what a row says.

        Raises:
            UnusableRowError: if it cannot be used.
        """
        columns = self._columns
        split, is_test_part = self._read_split(row)
        pictures = [p for text in columns.pictures for p in self._list_pictures(row, text)]
        prompt, opening = read_prompt(row, self._settings, pictures)
        content = make_example(prompt, cluster="", pictures=opening).id
        cluster = pictures[0].digest if pictures else content
        if columns.cluster:
            cluster = require_text(row, columns.cluster, "missing cluster")
        example = make_example(
            prompt,
            cluster=cluster,
            pictures=opening,
            label=self._read_label(row, columns.answer) if columns.answer else None,
            fields=self._collect_fields(row),
        )
        return Item(
            example=replace(example, fields={**example.fields, ROW_FIELD: row.where}),
            content=content,
            split=split,
            is_test_part=is_test_part,
            target=read_target(row, columns.target) if columns.target else None,
            name=read_text(row, columns.id) if columns.id else None,
            row=row,
        )

    def _read_split(self, row: SourceRow) -> tuple[str, bool]:
        if self._columns.split is None:
            return row.split, row.is_test_part
        value = read_text(row, self._columns.split) or ""
        split = self._splits.get(value.casefold())
        if split is None:
            raise UnusableRowError("of a split that is not used", f"got {value!r}")
        return split, TEST_PART.search(value) is not None

    def _read_label(self, row: SourceRow, column: str) -> str:
        given = require_text(row, column, "missing answer")
        label = self._read_answer(given) if self._read_answer else given
        if label is None:
            raise UnusableRowError("answer that cannot be given", f"got {given[:80]!r}")
        return label

    def _list_pictures(self, row: SourceRow, column: str) -> list[Picture]:
        return [self._open(row, value, column) for value in read_list(row, column)]

    def _open(self, row: SourceRow, value: Any, column: str) -> Picture:
        """Return a picture given by its path or bytes, or by both as the hub's data sets do."""
        held = as_mapping(value)
        content = value if held is None else held.get("bytes")
        if isinstance(content, bytes):
            return store_bytes(content, self._folder)
        name = _find_name(value)
        if not name:
            raise UnusableRowError("missing picture name", f"no {column}")
        path = row.folder / name
        if path not in self._decoded:
            self._decoded[path], _, _ = decode_picture(path)
        return self._decoded[path]

    def _collect_fields(self, row: SourceRow) -> dict[str, Any]:
        """Return all columns but the pictures', and the options, as JSON values."""
        shown = {name for name in self._columns.pictures if not is_template(name)}
        fields = {key: clean_value(v) for key, v in row.values.items() if key not in shown}
        named = self._columns.fields.items()
        fields |= {name: clean_value(read_value(row, text)) for name, text in named}
        if self._columns.options:
            fields["options"] = self._list_options(row)
        try:
            json.dumps(fields, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise UnusableRowError("text is not Unicode", str(error)) from None
        return fields

    def _list_options(self, row: SourceRow) -> list[str]:
        columns = self._columns.options
        if len(columns) > 1:
            return [require_text(row, column, "missing option") for column in columns]
        values = read_list(row, "".join(columns))
        options = ["" if value is None else str(value).strip() for value in values]
        if len(options) < 2 or not all(options):
            raise UnusableRowError("missing option", f"got {options!s:.80}")
        return options


def _find_name(value: Any) -> str:
    held = as_mapping(value)
    name = value if held is None else held.get("path")
    return name.strip() if isinstance(name, str) else ""
