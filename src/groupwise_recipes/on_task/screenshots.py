"""Loads a folder of screenshots with tasks, sessions and, where there are any, labels; splits it.

Every row is either used or dropped with a counted reason; nothing is repaired or guessed.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from groupwise.core import ConfigError, DataError, Picture, digest_file, digest_json
from groupwise.data.examples import DropLog
from groupwise.data.files import Row, find_index, read_table_rows
from groupwise.data.rows import (
    PICTURE_COLUMNS,
    UnusableRowError,
    decode_picture,
    digest_picture,
    read_moment,
    refuse_outside,
)
from groupwise.data.splits import split_clusters

LABELS = ("on-task", "off-task")
_TASK_KEYS = ("task", "task_description", "task_en")
_SESSION_KEYS = ("session",)
_SURROGATE = re.compile("[\ud800-\udfff]")
_CJK = re.compile("[\u3400-\u9fff\uf900-\ufaff]")


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
    if not allow_outside:
        refuse_outside((r.where, root / name, root) for r in rows if (name := _name_picture(r)))
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
        return _read_screenshot(Row({**values, **own}, ""), Path(), {})
    except UnusableRowError as error:
        raise DataError(f"{error.reason} ({error.detail})") from None


def _name_picture(row: Row) -> str:
    try:
        return _find_text(row, PICTURE_COLUMNS) or ""
    except UnusableRowError:
        return ""


def _follow_origins(
    rows: Sequence[Row], read: Mapping[int, Screenshot], drops: DropLog
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
    row: Row, root: Path, sizes: dict[Path, tuple[Picture, int, int]]
) -> Screenshot:
    name = _require_text(row, PICTURE_COLUMNS, "missing picture name")
    task = _require_text(row, _TASK_KEYS, "missing task")
    session = _require_text(row, _SESSION_KEYS, "missing session")
    given: dict[str, Any] = {key: row.values.get(key) for key in ("label", "fold", "time")}
    given = {k: None if isinstance(v, str) and not v.strip() else v for k, v in given.items()}
    label, fold = given["label"], given["fold"]
    if label is not None:
        label = label.strip().lower() if isinstance(label, str) else None
        if label not in LABELS:
            raise UnusableRowError("label outside the set", f"got {str(given['label'])[:40]!r}")
    if fold is not None:
        if isinstance(fold, bool) or not re.fullmatch(r"\s*-?[0-9]{1,9}\s*", str(fold)):
            raise UnusableRowError("fold is not a whole number", f"got {str(fold)[:40]!r}")
        fold = int(fold)
    path = root / name
    if path not in sizes:
        sizes[path] = decode_picture(path)
    picture, width, height = sizes[path]
    try:
        time_s = read_moment(given["time"])
    except ValueError as error:
        raise UnusableRowError("time cannot be read", str(error)) from None
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
        time_s=time_s,
    )


def _find_text(row: Row, keys: tuple[str, ...]) -> str | None:
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


def _require_text(row: Row, keys: tuple[str, ...], reason: str) -> str:
    text = _find_text(row, keys)
    if text is None:
        raise UnusableRowError(reason, f"no {' or '.join(keys)}")
    return text


def split_by_session(
    screens: Sequence[Screenshot], *, shares: Mapping[str, float], seed: int
) -> dict[str, list[Screenshot]]:
    """Split whole sessions by shares of their number, each activity about evenly.

    A session's activity is the one most of its screens have.

    Raises:
        ConfigError: if shares are not positive or do not add up to 1.
        DataError: if there are too few sessions to give every split one.
    """
    return split_clusters(
        screens,
        name_cluster=lambda screen: screen.session,
        name_kind=lambda screen: screen.activity or "",
        shares=shares,
        seed=seed,
    )


def split_by_fold(
    screens: Sequence[Screenshot], folds: Mapping[str, Sequence[int]]
) -> dict[str, list[Screenshot]]:
    """Split by the ``fold`` of the screens; folds that no split names are left out.

    Raises:
        ConfigError: if a split names no fold, or two splits the same one.
        DataError: if a screen has no fold, a fold has no screens, or a session would stand in
            two splits.
    """
    owner: dict[int | None, str] = {}
    for name, numbers in folds.items():
        if not numbers:
            raise ConfigError(f"the split {name!r} names no fold", fix="give it at least one")
        for number in numbers:
            if owner.setdefault(number, name) != name:
                raise ConfigError(
                    f"fold {number} is in two splits", got=f"{owner[number]!r} and {name!r}"
                )
    unfolded = [screen for screen in screens if screen.fold is None]
    if unfolded:
        raise DataError(
            f"{len(unfolded)} of {len(screens)} screens have no fold",
            got=f"for example {unfolded[0].picture.path.name}",
            fix="give every row a fold, or split by session",
        )
    known = {screen.fold for screen in screens if screen.fold is not None}
    missing = sorted({n for numbers in folds.values() for n in numbers} - known)
    if missing:
        raise DataError(
            f"fold {missing[0]} of split {owner[missing[0]]!r} has no screens",
            got=f"folds {sorted(known)}",
        )
    splits = {name: [s for s in screens if owner.get(s.fold) == name] for name in folds}
    side: dict[str, str] = {}
    for name, session in ((name, s.session) for name, part in splits.items() for s in part):
        if side.setdefault(session, name) != name:
            raise DataError(
                f"session {session} is in two splits",
                got=f"{side[session]!r} and {name!r}",
                fix="give all its rows folds of one split",
            )
    return splits
