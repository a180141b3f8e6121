"""Reads what one row says: prompt, answer, pictures, cluster, split and target.

A prompt is a text, or a chat whose turns may say where pictures stand. Each picture is decoded
once, to find torn files.
"""

import json
import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

from PIL import ImageOps

from groupwise.core import (
    ROW_FIELD,
    DataError,
    Example,
    Message,
    Picture,
    digest_bytes,
    digest_file,
    is_below,
    make_example,
    open_lazily,
)
from groupwise.data.columns import FillError, TableSettings, fill_template, is_template
from groupwise.data.examples import DropLog
from groupwise.data.files import TEST_PART, Row, find_index, read_table_rows

PICTURE_COLUMNS = ("image", "path", "screenshot")
"""Columns that name the picture of a row where no config says which one does."""
ReadAnswer = Callable[[str], str | None]
"""Returns an answer as it is compared, or None if no completion can give it."""
_NO_CHAT = "chat cannot be used"
_PLACES = "pictures and their places differ in number"
_ROLES = ("system", "user", "assistant")
_GIVEN = "_pictures"
_MOST_S = 1e11
"""More is the year 5138: a time in milliseconds, in which two minutes would be hours."""


class UnusableRowError(Exception):
    """Carries reason and detail from the reading of one row to the drop log."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason)
        self.reason, self.detail = reason, detail


def decode_picture(path: Path) -> tuple[Picture, int, int]:
    """Return a picture file with its width and height as shown, in pixels.

    Raises:
        UnusableRowError: if it is missing or cannot be decoded.
    """
    try:
        if path.exists() and not path.is_file():
            raise OSError("not a file")
        content = path.read_bytes()
    except FileNotFoundError:
        raise UnusableRowError("missing picture", path.name) from None
    except (OSError, ValueError) as error:
        raise UnusableRowError("unreadable picture", f"{path.name}: {error}") from None
    width, height, _ = _decode(content, path.name)
    return Picture(path, digest_bytes(content)), width, height


def _decode(content: bytes, name: str) -> tuple[int, int, str]:
    """Return width and height as shown, and the kind of file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with open_lazily(Path(name), content) as image:
                return *ImageOps.exif_transpose(image).size, image.format or "picture"
    except DataError as error:
        raise UnusableRowError("unreadable picture", str(error)) from None


def refuse_outside(places: Iterable[tuple[str, Path, Path]]) -> None:
    """Refuse rows that name files outside a folder; what is no file is dropped with its row.

    Args:
        places: the row that names it, the file, and the folder.

    Raises:
        DataError: if there are some, with the setting ``data.allow_outside`` that takes them.
    """
    outside: list[tuple[str, Path, Path]] = []
    for where, path, root in places:
        with suppress(OSError, ValueError):  # a name that no file can have
            if not is_below(path, root) and path.is_file():
                outside.append((where, path, root))
    if outside:
        where, path, root = outside[0]
        raise DataError(
            f"{len(outside)} pictures that rows name lie outside of {root}",
            got=f"{path} in {where}",
            fix="move them into it, or set data.allow_outside=true if they are meant",
        )


def digest_picture(path: Path) -> str | None:
    """Return the digest of a file; None: a row that names it is dropped."""
    try:
        return digest_file(path) if path.is_file() else None
    except OSError:
        return None


def clean_value(value: Any, *, write_bytes: Callable[[bytes], Any] | None = None) -> Any:
    """Return a value of a table as JSON: NaN is null, dates are ISO 8601, bytes as told or null."""
    if isinstance(value, Mapping):
        items = cast("Mapping[object, object]", value).items()
        return {str(key): clean_value(inner, write_bytes=write_bytes) for key, inner in items}
    if isinstance(value, list | tuple):
        inners = cast("Sequence[object]", value)
        return [clean_value(inner, write_bytes=write_bytes) for inner in inners]
    if isinstance(value, bytes):
        return write_bytes(value) if write_bytes else None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if value is None or isinstance(value, str | int):
        return value
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def read_moment(value: Any) -> float | None:
    """Return the seconds of a time: a number, or ISO 8601 (UTC where it names no zone).

    Nothing, or an empty text, is no time.

    Raises:
        ValueError: for anything else.
    """
    text = "" if value is None else str(value).strip()
    if not text:
        return None
    with suppress(ValueError):
        seconds = float(text)
        if math.isfinite(seconds) and abs(seconds) < _MOST_S:
            return seconds
    with suppress(ValueError):
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    form = "a time is seconds, or a moment such as 2026-01-31T09:30:00Z"
    raise ValueError(f"{form}, and not {text[:40]!r}")


def as_mapping(value: Any) -> Mapping[str, Any] | None:
    """Return a value that is a mapping, or None."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else None


def _read_value(row: Row, text: str) -> Any:
    """Return the value of the column of that name, or the text of a template."""
    if not is_template(text):
        return row.values.get(text)
    try:
        return fill_template(text, row.values, file=row.file)
    except FillError as error:
        raise UnusableRowError("template cannot be filled", str(error)) from None


def _read_text(row: Row, column: str, reason: str = "") -> str:
    """Return a value as text without outer spaces; without one, the row is dropped if told why."""
    value = clean_value(_read_value(row, column))
    plain = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = "" if value is None else plain.strip()
    if reason and not text:
        raise UnusableRowError(reason, f"no {column}")
    return text


def _read_list(row: Row, column: str) -> list[Any]:
    """Return a list, also one written as JSON text; a value alone is a list of one."""
    value = _read_value(row, column)
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise UnusableRowError("list cannot be read", f"{column}: {error}") from None
    return cast("list[Any]", value) if isinstance(value, list) else [value]


def list_picture_paths(row: Row, columns: Sequence[str]) -> list[Path]:
    """Return the files that a row names as its pictures, as far as it can be read."""
    try:
        values = [value for column in columns for value in _read_list(row, column)]
    except UnusableRowError:
        return []
    return [row.folder / name for value in values if (name := _find_name(value))]


def _find_name(value: Any) -> str:
    held = as_mapping(value)
    name = value if held is None else held.get("path")
    return name.strip() if isinstance(name, str) else ""


def _read_chat(turns: Sequence[Any], pictures: Sequence[Picture]) -> tuple[list[Message], bool]:
    """Return the turns, and whether they say where the pictures stand."""
    left, messages = list(pictures), list[Message]()
    for turn in turns:
        said = as_mapping(turn) or {}
        role, content = said.get("role"), said.get("content")
        if role not in _ROLES:
            raise UnusableRowError(_NO_CHAT, f"a turn of {role!r}, not of {', '.join(_ROLES)}")
        shown: list[str | Picture] = []
        alone = [{"type": "text", "text": content}]
        for part in cast("list[Any]", content) if isinstance(content, list) else alone:
            given = as_mapping(part) or {}
            if given.get("type") == "text" and isinstance(given.get("text"), str):
                shown.append(given["text"])
            elif given.get("type") != "image" or role != "user":
                raise UnusableRowError(_NO_CHAT, f"content that is no text: {part!r:.60}")
            elif not left:
                raise UnusableRowError(_PLACES, "more places than pictures")
            else:
                shown.append(left.pop(0))
        messages.append(Message(role, shown))
    is_placing = len(left) < len(pictures)
    if is_placing and left:
        raise UnusableRowError(_PLACES, f"{len(left)} of {len(pictures)} pictures have no place")
    if not messages or messages[-1].role != "user":
        raise UnusableRowError(_NO_CHAT, "it does not end with the user's turn")
    if not messages[-1].text.strip():
        raise UnusableRowError("empty prompt", "no words in the user's last turn")
    return messages, is_placing


def _refuse_broken(values: Mapping[str, Any]) -> None:
    try:
        json.dumps(values, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise UnusableRowError("text is not Unicode", str(error)) from None


@dataclass(frozen=True, slots=True)
class Item:
    """A usable row."""

    example: Example  # what it asks
    content: str  # digest of prompt and pictures: two rows with the same one ask the same
    target: str | None  # what the warm-up teaches
    row: Row  # as it was found, in the split that its column says


class RowReader:
    """Reads rows as settings say; pictures that rows hold as bytes are written into ``folder``."""

    def __init__(
        self, settings: TableSettings, folder: Path, read_answer: ReadAnswer | None
    ) -> None:
        self._settings, self._folder, self._read_answer = settings, folder, read_answer
        self._splits = {
            value.casefold(): split for split, values in settings.splits.items() for value in values
        }
        self._decoded: dict[Path, Picture] = {}

    def read(self, row: Row) -> Item:
        """Return what a row says, or raise UnusableRowError."""
        columns = self._settings.columns
        if columns.split:
            named = _read_text(row, columns.split)
            if named.casefold() not in self._splits:
                raise UnusableRowError("of a split that is not used", f"got {named!r}")
            is_test = bool(TEST_PART.search(named))
            row = replace(row, split=self._splits[named.casefold()], is_test_part=is_test)
        pictures = [
            self._open(row, value, column)
            for column in columns.pictures
            for value in _read_list(row, column)
        ]
        prompt, opening = self._read_prompt(row, pictures)
        content = make_example(prompt, cluster="", pictures=opening).id
        cluster = pictures[0].digest if pictures else content
        if columns.cluster:
            cluster = _read_text(row, columns.cluster, "missing cluster")
        label = None
        if columns.answer:
            given = _read_text(row, columns.answer, "missing answer")
            label = self._read_answer(given) if self._read_answer else given
            if label is None:
                raise UnusableRowError("answer that cannot be given", f"got {given[:80]!r}")
        # All columns but the pictures', and the options, as JSON values.
        shown = {name for name in columns.pictures if not is_template(name)}
        fields = {key: clean_value(v) for key, v in row.values.items() if key not in shown}
        named = columns.fields.items()
        fields |= {name: clean_value(_read_value(row, text)) for name, text in named}
        if len(columns.options) > 1:
            fields["options"] = [_read_text(row, o, "missing option") for o in columns.options]
        elif columns.options:
            values = _read_list(row, columns.options[0])
            options = ["" if value is None else str(value).strip() for value in values]
            if len(options) < 2 or not all(options):
                raise UnusableRowError("missing option", f"got {options!s:.80}")
            fields["options"] = options
        _refuse_broken(fields)
        example = make_example(
            prompt, cluster=cluster, pictures=opening, label=label, fields=fields
        )
        target = self._read_target(row, columns.target) if columns.target else None
        example = replace(example, fields={**fields, ROW_FIELD: row.where})
        return Item(example, content, target, row)

    def _read_prompt(
        self, row: Row, pictures: Sequence[Picture]
    ) -> tuple[list[Message], Sequence[Picture]]:
        """Return the prompt, and the pictures that are to open it because no turn places them."""
        columns, system = self._settings.columns, self._settings.system
        value = clean_value(_read_value(row, columns.prompt))
        if isinstance(value, list):
            turns = cast("list[Any]", value)[: -1 if columns.target == columns.prompt else None]
            messages, is_placing = _read_chat(turns, pictures)
        else:
            text = "" if value is None else str(value)
            if not text.strip():
                raise UnusableRowError("empty prompt", f"no {columns.prompt}")
            messages, is_placing = [Message("user", text)], False
        if system and messages[0].role != "system":
            filled = _read_value(row, system) if is_template(system) else system
            messages.insert(0, Message("system", filled))
        return messages, () if is_placing else pictures

    def _open(self, row: Row, value: Any, column: str) -> Picture:
        """Return a picture given by its path or bytes, or by both as the hub's data sets do."""
        held = as_mapping(value)
        content = value if held is None else held.get("bytes")
        if isinstance(content, bytes):
            kind, digest = _decode(content, "bytes")[2], digest_bytes(content)
            self._folder.mkdir(parents=True, exist_ok=True)
            path = self._folder / f"{digest}.{kind.lower()}"
            path.write_bytes(content)
            return Picture(path, digest)
        name = _find_name(value)
        if not name:
            raise UnusableRowError("missing picture name", f"no {column}")
        path = row.folder / name
        if path not in self._decoded:
            self._decoded[path] = decode_picture(path)[0]
        return self._decoded[path]

    def _read_target(self, row: Row, column: str) -> str | None:
        """Return what the warm-up teaches: a text, or the last turn of a chat; None if missing."""
        value = _read_value(row, column)
        if not isinstance(value, list):
            return _read_text(row, column) or None
        turns = cast("list[Any]", value)
        turn = as_mapping(turns[-1]) if turns else None
        if turn is None or turn.get("role") != "assistant":
            raise UnusableRowError(_NO_CHAT, f"{column} does not end with the assistant's turn")
        return str(turn.get("content") or "").strip() or None


def read_asked_rows(path: Path, *, pictures: Sequence[str] = ()) -> tuple[list[Row], DropLog]:
    """Return the rows of a file, or of the one table in a folder, that are answered, not learned.

    They need no label, split or cluster. Their values are JSON values, without those of pictures,
    and ``_file`` is the file's name.

    Args:
        path: JSONL, JSON, CSV, TSV or Parquet, or a folder with one JSONL or CSV file.
        pictures: columns with paths of pictures, relative to the file; a row may lack them.

    Returns:
        The rows with the files of their pictures, and those that are unreadable.

    Raises:
        DataError: if there is no table.
    """
    drops, found = DropLog(), list[Row]()
    for row in read_table_rows(find_index(path) if path.is_dir() else path, drops):
        values = {k: clean_value(v) for k, v in row.values.items() if k not in pictures}
        values["_file"] = row.file
        try:
            _refuse_broken(values)
        except UnusableRowError as error:
            drops.add(error.reason, row.where)
            continue
        files = tuple(list_picture_paths(row, pictures))
        found.append(replace(row, values=values, pictures=files))
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
    columns = settings.columns
    named = [name for name in columns.pictures if name in values and not is_template(name)]
    if named:
        raise DataError(f"the row names the picture {named[0]}", fix="give it beside the row")
    if bool(pictures) != bool(columns.pictures):
        needed = "at least one" if columns.pictures else "none"
        raise DataError("a row has other pictures", got=len(pictures), expected=needed)
    unasked = dict.fromkeys(("answer", "target", "split", "cluster"))
    given: dict[str, Any] = {"pictures": (_GIVEN,) if pictures else (), "fields": {}}
    columns = columns.model_copy(update={**unasked, **given})
    reader = RowReader(settings.model_copy(update={"columns": columns}), folder, None)
    whole = {**values, _GIVEN: [str(path.absolute()) for path in pictures]}
    try:
        return reader.read(Row(whole, "", folder, file=str(values.get("_file", "")))).example
    except UnusableRowError as error:
        raise DataError(f"{error.reason} ({error.detail})") from None
