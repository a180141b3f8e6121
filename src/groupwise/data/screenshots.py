"""Loads a folder of screenshots with tasks, sessions and, where there are any, labels.

Every row is either used or dropped with a counted reason; nothing is repaired or guessed. Pairs
and splits are made elsewhere.
"""

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from groupwise.core import DataError, Picture, digest_file, digest_json
from groupwise.data.drops import DropLog
from groupwise.data.tables.files import TableRow, find_index, read_table_rows
from groupwise.data.tables.values import (
    UnusableRowError,
    decode_picture,
    digest_picture,
    refuse_outside,
)

LABELS = ("on-task", "off-task")

PICTURE_COLUMNS = ("image", "path", "screenshot")
"""Columns that may name the picture of a row."""

_TASK_KEYS = ("task", "task_description", "task_en")
_SESSION_KEYS = ("session",)
_SURROGATE = re.compile("[\ud800-\udfff]")
_CJK = re.compile("[\u3400-\u9fff\uf900-\ufaff]")

_MOST_S = 1e11
"""More is the year 5138: a time in milliseconds, in which two minutes would be hours."""


@dataclass(frozen=True, slots=True)
class Screenshot:
    """One screenshot and what its row says.

    Attributes:
        picture: the file and its digest.
        session: what is never split.
        task: what the person of this session said they work on.
        activity: kind of work the task is, or None.
        label: ``on-task``, ``off-task`` or None where nobody judged.
        fold: number of a fixed split, or None.
        language: of the task; as given, else ``zh`` if it has Chinese characters, else ``en``.
        difficulty: as given, or None.
        source: where the row comes from; ``captured`` if not given.
        width: pixels as shown, EXIF rotation applied.
        height: pixels as shown, EXIF rotation applied.
        words: what was read on it; None: nobody read it.
        time_s: when it was seen, in seconds from any beginning; None: not known.
    """

    picture: Picture
    session: str
    task: str
    activity: str | None
    label: str | None
    fold: int | None
    language: str
    difficulty: str | None
    source: str
    width: int
    height: int
    words: str | None = None
    time_s: float | None = None


@dataclass(frozen=True, slots=True)
class LoadedScreens:
    """What came out of a folder: ``num_rows == len(screens) + drops.total``."""

    screens: tuple[Screenshot, ...]
    drops: DropLog
    num_rows: int


def load_screenshots(root: Path, *, allow_outside: bool = False) -> LoadedScreens:
    """Load a screenshot set.

    The folder has ``index.jsonl`` or exactly one CSV or JSONL file, with the columns ``image``
    (or ``path``, ``screenshot``; relative to the folder), ``task`` (or ``task_description``,
    ``task_en``), ``session`` and, if there are any, ``label``, ``activity``, ``fold``,
    ``language``, ``difficulty``, ``source``, ``origin``, ``time``. Other columns are ignored. Each
    picture is fully decoded once.

    A row whose screen was made from that of another row (cropped, mirrored, redrawn) names that
    row's picture as its ``origin``: it then has the session and fold of its origin, and stays on
    its side. One whose origin is not there is dropped.

    Args:
        root: the folder.
        allow_outside: take pictures that lie elsewhere, too.

    Raises:
        DataError: if there is no index or no usable row, or a row names a picture outside the
            folder.
    """
    index = find_index(root)
    drops = DropLog()
    rows = read_table_rows(index, drops)
    num_rows = len(rows) + drops.total
    _check_columns(rows, index)
    if not allow_outside:
        named = ((row.where, root / name) for row in rows if (name := _name_picture(row)))
        refuse_outside(named, root, setting="data.allow_outside")
    sizes: dict[Path, tuple[Picture, int, int]] = {}
    read: dict[int, Screenshot] = {}
    for number, row in enumerate(rows):
        try:
            read[number] = _read_screenshot(row, root, sizes)
        except UnusableRowError as error:
            drops.add(error.reason, f"{row.where} ({error.detail})")
    screens = _follow_origins(rows, read, drops)
    if not screens:
        raise DataError(
            f"{index} has no usable row",
            got=", ".join(f"{num} x {reason}" for reason, num in drops.counts.items()) or "no rows",
            expected="rows with image, task, session and, if judged, label",
        )
    return LoadedScreens(tuple(screens), drops, num_rows)


def _check_columns(rows: Sequence[TableRow], index: Path) -> None:
    """Refuse rows of which none has a column that all need."""
    found = dict.fromkeys(name for row in rows for name in row.values)
    needed = {keys[0]: keys for keys in (PICTURE_COLUMNS, _TASK_KEYS, _SESSION_KEYS)}
    missing = [name for name, keys in needed.items() if not found.keys() & {*keys}]
    if rows and missing:
        raise DataError(
            f"{index} has no column {' and no column '.join(missing)}",
            got=f"the columns {', '.join(found)}",
            expected=", ".join(" or ".join(keys) for keys in needed.values()),
            fix="rename them",
        )


def digest_screenshots(root: Path) -> str:
    """Return the digest of what ``load_screenshots`` reads: the index, and the pictures it names.

    Pictures count wherever they are, also outside the folder; what no row names does not.

    Raises:
        DataError: if there is no index, or it cannot be read.
    """
    index = find_index(root)
    names = {_name_picture(row) for row in read_table_rows(index, DropLog())}
    pictures = [[name, digest_picture(root / name)] for name in sorted(names)]
    return digest_json([index.name, digest_file(index), pictures])


def read_screen(values: Mapping[str, Any], picture: Path) -> Screenshot:
    """Return a screenshot that is only asked about: no session is needed, and no label read.

    Raises:
        DataError: if there is no task or no whole picture.
    """
    own = {"image": str(picture.absolute()), "session": "asked", "label": None, "fold": None}
    try:
        return _read_screenshot(TableRow({**values, **own}, ""), Path(), {})
    except UnusableRowError as error:
        raise DataError(f"{error.reason} ({error.detail})") from None


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


def _name_picture(row: TableRow) -> str:
    try:
        return _find_text(row, PICTURE_COLUMNS) or ""
    except UnusableRowError:
        return ""


def _follow_origins(
    rows: Sequence[TableRow], read: Mapping[int, Screenshot], drops: DropLog
) -> list[Screenshot]:
    """Return the screens with the sessions and folds of what they were made from."""
    place = {
        _find_text(rows[number], PICTURE_COLUMNS): number for number in sorted(read, reverse=True)
    }
    screens: list[Screenshot] = []
    for number, screen in read.items():
        first: int | None = number
        seen: set[int] = set()
        while first is not None and (origin := _find_text(rows[first], ("origin",))):
            seen.add(first)
            first = place.get(origin)
            if first in seen:
                first = None
        if first is None:
            drops.add("origin is not there", rows[number].where)
        else:
            own = read[first]
            screens.append(replace(screen, session=own.session, fold=own.fold))
    return screens


def _read_screenshot(
    row: TableRow, root: Path, sizes: dict[Path, tuple[Picture, int, int]]
) -> Screenshot:
    name = _require_text(row, PICTURE_COLUMNS, "missing picture name")
    task = _require_text(row, _TASK_KEYS, "missing task")
    session = _require_text(row, _SESSION_KEYS, "missing session")
    label = _read_label(row.values.get("label"))
    fold = _read_fold(row.values.get("fold"))
    path = root / name
    if path not in sizes:
        sizes[path] = decode_picture(path)
    picture, width, height = sizes[path]
    return Screenshot(
        picture=picture,
        session=session,
        task=task,
        activity=_find_text(row, ("activity",)),
        label=label,
        fold=fold,
        language=_find_text(row, ("language",)) or ("zh" if _CJK.search(task) else "en"),
        difficulty=_find_text(row, ("difficulty",)),
        source=_find_text(row, ("source",)) or "captured",
        width=width,
        height=height,
        time_s=_read_time(row.values.get("time")),
    )


def _find_text(row: TableRow, keys: tuple[str, ...]) -> str | None:
    """Return the first non-empty value under one of the keys; numbers count as their text."""
    for key in keys:
        value = row.values.get(key)
        if not isinstance(value, str | int) or isinstance(value, bool):
            continue
        text = str(value).strip()
        if "\0" in text or (not text.isprintable() and _SURROGATE.search(text)):
            raise UnusableRowError("text is not Unicode", key)
        if text:
            return text
    return None


def _require_text(row: TableRow, keys: tuple[str, ...], reason: str) -> str:
    text = _find_text(row, keys)
    if text is None:
        raise UnusableRowError(reason, f"no {' or '.join(keys)}")
    return text


def _read_label(value: Any) -> str | None:
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    label = value.strip().lower() if isinstance(value, str) else None
    if label not in LABELS:
        raise UnusableRowError("label outside the set", f"got {str(value)[:40]!r}")
    return label


def _read_fold(value: Any) -> int | None:
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    if isinstance(value, bool) or not re.fullmatch(r"\s*-?[0-9]{1,9}\s*", str(value)):
        raise UnusableRowError("fold is not a whole number", f"got {str(value)[:40]!r}")
    return int(value)


def _read_time(value: Any) -> float | None:
    try:
        return read_moment(value)
    except ValueError as error:
        raise UnusableRowError("time cannot be read", str(error)) from None
