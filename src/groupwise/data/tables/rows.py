"""Reads what one row says: prompt, answer, pictures, cluster, split and target.

A prompt is a text, or a chat whose turns may say where pictures stand.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from groupwise.core import ROW_FIELD, Example, Message, Picture, make_example
from groupwise.data.tables.settings import TableSettings
from groupwise.data.tables.sources import TEST_PART, SourceRow
from groupwise.data.tables.templates import is_template
from groupwise.data.tables.values import (
    UnusableRowError,
    as_mapping,
    clean_value,
    decode_picture,
    read_list,
    read_text,
    read_value,
    require_text,
    store_bytes,
)

_NO_CHAT = "chat cannot be used"
_PLACES = "pictures and their places differ in number"
_ROLES = ("system", "user", "assistant")


def read_target(row: SourceRow, column: str) -> str | None:
    """Return what the warm-up teaches: a text, or the last turn of a chat; None if missing."""
    value = read_value(row, column)
    if not isinstance(value, list):
        return read_text(row, column)
    turns = cast("list[Any]", value)
    turn = as_mapping(turns[-1]) if turns else None
    if turn is None or turn.get("role") != "assistant":
        raise UnusableRowError(_NO_CHAT, f"{column} does not end with the assistant's turn")
    return str(turn.get("content") or "").strip() or None


def read_prompt(
    row: SourceRow, settings: TableSettings, pictures: Sequence[Picture]
) -> tuple[list[Message], Sequence[Picture]]:
    """Return the prompt, and the pictures that are to open it because no turn places them."""
    columns = settings.columns
    value = clean_value(read_value(row, columns.prompt))
    if isinstance(value, list):
        turns = cast("list[Any]", value)[: -1 if columns.target == columns.prompt else None]
        messages, is_placing = _read_chat(turns, pictures)
    else:
        text = "" if value is None else str(value)
        if not text.strip():
            raise UnusableRowError("empty prompt", f"no {columns.prompt}")
        messages, is_placing = [Message("user", text)], False
    if settings.system and messages[0].role != "system":
        is_filled = is_template(settings.system)
        system = read_value(row, settings.system) if is_filled else settings.system
        messages.insert(0, Message("system", system))
    return messages, () if is_placing else pictures


def _read_chat(turns: Sequence[Any], pictures: Sequence[Picture]) -> tuple[list[Message], bool]:
    """Return the turns, and whether they say where the pictures stand."""
    left = list(pictures)
    messages = [_read_turn(turn, left) for turn in turns]
    is_placing = len(left) < len(pictures)
    if is_placing and left:
        num_places = len(pictures) - len(left)
        raise UnusableRowError(_PLACES, f"{len(pictures)} pictures for {num_places} places")
    if not messages or messages[-1].role != "user":
        raise UnusableRowError(_NO_CHAT, "it does not end with the user's turn")
    if not messages[-1].text.strip():
        raise UnusableRowError("empty prompt", "no words in the user's last turn")
    return messages, is_placing


def _read_turn(turn: Any, left: list[Picture]) -> Message:
    """Return a turn, with the next of the pictures that are left at each of its places."""
    said = as_mapping(turn) or {}
    role: Any = said.get("role")
    if role not in _ROLES:
        raise UnusableRowError(_NO_CHAT, f"a turn of {role!r}, not of {', '.join(_ROLES)}")
    content: Any = said.get("content")
    alone = [{"type": "text", "text": content}]
    parts = cast("list[Any]", content) if isinstance(content, list) else alone
    return Message(role, [_read_part(part, role, left) for part in parts])


def _read_part(part: Any, role: str, left: list[Picture]) -> str | Picture:
    given = as_mapping(part) or {}
    kind, text = given.get("type"), given.get("text")
    if kind == "text" and isinstance(text, str):
        return text
    if kind != "image" or role != "user":
        raise UnusableRowError(_NO_CHAT, f"content that is no text: {part!r:.60}")
    if not left:
        raise UnusableRowError(_PLACES, "more places than pictures")
    return left.pop(0)


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
        """Return what a row says."""
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
