"""Finds and reads rows: of JSONL, JSON, CSV, TSV and Parquet files, and of data sets of the hub.

It knows lines and cells, not what they mean. A line that cannot be read is dropped and counted.
"""

import csv
import gzip
import io
import json
import re
import string
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from glob import glob
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from groupwise.core import DataError, find_state
from groupwise.data.columns import SPLITS, TableSettings
from groupwise.data.examples import Drop, DropLog

SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet")
ENDINGS = (*SUFFIXES, *(f"{suffix}.gz" for suffix in SUFFIXES))
"""What names of tables end in."""
TEST_PART = re.compile(r"(?<![a-z])test(?![a-z])|测试", re.IGNORECASE)
"""Finds what publishers call their test part in the name of a file, folder or split."""

# Of real Chinese text nearly all is among the common characters of GB 2312's first level, whose
# first byte is at most 0xd7; Latin letters read as Chinese are not.
_LAST_COMMON = 0xD7
_MIN_COMMON_SHARE = 0.9
# What is parsed is kept for whoever reads the same file next, as the digest of a table and its
# loading do: so many files, each of at most so many bytes, and, as git does it, none that was
# written so lately that it could change again within one tick of the file system's clock.
_NUM_KEPT, _KEPT_BYTES = 8, 16 * 2**20


@dataclass(frozen=True, slots=True)
class Row:
    """A row as it was found.

    Attributes:
        values: by column; nobody changes them.
        where: file and line, for messages.
        folder: that the paths of pictures are relative to.
        file: name of the file without its suffix.
        source: file, or data set and split, it is counted under.
        split: that it is of as given.
        is_test_part: whether its file or split is called a test, whatever it is used for.
    """

    values: Mapping[str, Any]
    where: str
    folder: Path = Path()
    file: str = ""
    source: str = ""
    split: str = "train"
    is_test_part: bool = False


def find_index(root: Path) -> Path:
    """Return the index file of a data folder: ``index.jsonl``, or its only CSV or JSONL file.

    Raises:
        DataError: if it is no folder, or cannot be told.
    """
    if not root.is_dir():
        raise DataError(
            f"{root} is not a data folder",
            got="a file there" if root.exists() else "nothing there",
            fix="give the folder that holds index.jsonl",
        )
    tables = sorted(p for p in root.iterdir() if p.suffix.lower() in (".csv", ".jsonl"))
    tables = [path for path in tables if path.is_file()]
    named = [path for path in tables if path.name == "index.jsonl"]
    if len(named or tables) != 1:
        raise DataError(
            f"cannot tell which file lists the pictures of {root}",
            got=", ".join(path.name for path in tables) or "no such file",
            expected="index.jsonl, or exactly one .csv or .jsonl file",
        )
    return (named or tables)[0]


def read_source(settings: TableSettings, drops: DropLog) -> list[Row]:
    """Return all rows that can be read, each with its split; unreadable lines are dropped.

    Raises:
        DataError: if there is no table, it cannot be read, or it has no rows.
    """
    if settings.hub:
        found = list(_read_hub(settings.hub, settings))
    else:
        found = [
            replace(row, split=split)
            for split, patterns in settings.files.items()
            for pattern in patterns
            for path in find_tables(pattern)
            for row in read_table_rows(path, drops)
        ]
    if not found:
        places = settings.hub or ", ".join(f for files in settings.files.values() for f in files)
        raise DataError(f"{places} has no rows", got=drops.counts or None)
    return found


def find_tables(pattern: str) -> list[Path]:
    """Return the tables that a path, a folder or a pattern names, sorted.

    Raises:
        DataError: if there is none.
    """
    path = Path(pattern)
    if path.is_dir():
        found = [p for p in path.iterdir() if p.is_file() and p.name.lower().endswith(ENDINGS)]
    else:
        found = [path] if path.is_file() else [Path(name) for name in glob(pattern, recursive=True)]
    if not found:
        raise DataError(
            f"there is no table at {pattern}", expected=f"files with {', '.join(SUFFIXES)}"
        )
    return sorted(found)


def _read_hub(name: str, settings: TableSettings) -> Iterator[Row]:
    """Yield the rows of a data set; pictures stay as their bytes or paths."""
    parts = open_dataset(name, subset=settings.subset, revision=settings.revision)
    used = {s: [p for p in parts if p in settings.splits.get(s, ())] for s in SPLITS}
    if not any(used.values()):
        raise DataError(
            f"{name} has no split that is used",
            got=", ".join(parts),
            expected=f"one of data.splits: {dict(settings.splits)}",
        )
    for split, part in ((ours, part) for ours in SPLITS for part in used[ours]):
        is_test, source = bool(TEST_PART.search(part)), f"{name} {part}"
        for number, values in enumerate(list_rows(parts[part]), start=1):
            where, folder = f"{source} row {number}", Path(name)
            yield Row(values, where, folder, folder.name, source, split, is_test)


def open_dataset(
    name: str, *, subset: str | None = None, revision: str | None = None
) -> Mapping[str, Any]:
    """Return the splits of a data set of the hub, or of a folder with one.

    Raises:
        DataError: if it cannot be read.
    """
    datasets: Any = import_module("datasets")
    folder = Path(name)
    try:
        if (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file():
            found = datasets.load_from_disk(name)
        else:
            found = datasets.load_dataset(name, subset, revision=revision)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        reason = " ".join(str(error).split())
        raise DataError(
            f"cannot read the data set {name} ({reason})",
            fix="download it first (hf download --repo-type dataset), or give a folder with it",
        ) from error
    return cast("Mapping[str, Any]", found) if isinstance(found, dict) else {"train": found}


def list_rows(part: Any) -> list[dict[str, Any]]:
    """Return the rows of a split of a data set; pictures are not decoded."""
    return part.with_format("arrow")[:].to_pylist()


def read_table_rows(path: Path, drops: DropLog) -> list[Row]:
    """Return the readable rows of a file; the others go to ``drops``.

    Blank lines are no rows. The kind of file is told by its suffix (``SUFFIXES``, and ``.gz``
    behind them). A CSV file without a comma in its header may have semicolons or tabs. Texts are
    UTF-8, with or without a byte order mark, or Chinese GB 18030.

    Raises:
        DataError: if the file cannot be read, is of another kind, or its encoding is not known.
    """
    name = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    kind = name.suffix.lower()
    if kind not in SUFFIXES:
        raise DataError(
            f"{path} is no table", got=name.suffix or "no suffix", expected=", ".join(SUFFIXES)
        )
    try:
        state = find_state(path)
        is_kept = state is not None and path.stat().st_size <= _KEPT_BYTES
        rows, dropped = (_read_file if is_kept else _read_file.__wrapped__)(path, kind, state)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise DataError(f"cannot read {path} ({error})") from error
    drops.rows += dropped
    return list(rows)


_Found = Iterator[tuple[object, str]]
"""Values of rows, each with its place."""


@lru_cache(_NUM_KEPT)
def _read_file(
    path: Path, kind: str, state: tuple[int, ...] | None
) -> tuple[list[Row], list[Drop]]:
    """Return the rows of a file in a state, and the lines that cannot be read."""
    del state  # another one is another file
    content = path.read_bytes()
    content = gzip.decompress(content) if path.suffix.lower() == ".gz" else content
    read = {".parquet": _read_parquet, ".json": _read_json, ".csv": _read_csv, ".tsv": _read_csv}
    found, drops = read.get(kind, _read_jsonl)(content, path), DropLog()
    folder, name = path.parent, path.name.partition(".")[0]
    is_test = any(TEST_PART.search(part) for part in (path.name, folder.name))
    rows: list[Row] = []
    for values, where in found:
        if isinstance(values, dict):
            given = cast("dict[str, Any]", values)
            rows.append(Row(given, where, folder, name, path.name, is_test_part=is_test))
        else:
            fault = values if isinstance(values, _Fault) else "not a JSON object"
            drops.add("line cannot be read", f"{where} ({fault})")
    return rows, drops.rows


class _Fault(str):
    """What is wrong with a line, in the place of its values."""


def _decode(content: bytes, path: Path, *, by_line: bool = False) -> str:
    """Return the text of a file; of one that has a row per line, a bad line spoils no other."""
    try:
        return content.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        with suppress(UnicodeDecodeError):  # nearly any bytes are *some* text in GB 18030
            text = content.decode("gb18030")
            rest = [character for character in text if not character.isascii()]
            codes = [ord(c.encode("gb2312", "ignore")[:1] or b"\0") for c in rest]
            if sum(0 < code <= _LAST_COMMON for code in codes) >= _MIN_COMMON_SHARE * len(rest):
                return text
        if by_line and b"\0" not in content:  # UTF-16 has no line that can be read
            return content.decode("utf-8", "surrogateescape").removeprefix("\ufeff")
        raise DataError(f"{path} is not UTF-8 ({error})", fix="save it as UTF-8") from error


def _refuse_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in found if names.count(name) > 1)
        raise ValueError(f"{repeated} appears twice")
    return found


def _read_jsonl(content: bytes, path: Path) -> _Found:
    for number, line in enumerate(_decode(content, path, by_line=True).split("\n"), 1):
        if not line.strip(string.whitespace):
            continue
        try:
            line.encode()
            values: object = json.loads(line, object_pairs_hook=_refuse_repeated)
        except (json.JSONDecodeError, UnicodeEncodeError, RecursionError):
            values = _Fault("not JSON")
        except ValueError as error:
            values = _Fault(error)
        yield values, f"{path.name}:{number}"


def _read_json(content: bytes, path: Path) -> _Found:
    try:
        rows: object = json.loads(_decode(content, path))
    except (json.JSONDecodeError, RecursionError) as error:
        raise DataError(f"{path} is not JSON ({error})") from error
    if not isinstance(rows, list):
        raise DataError(f"{path} is no table", got=type(rows).__name__, expected="a list of rows")
    for number, row in enumerate(cast("list[object]", rows), start=1):
        yield row, f"{path.name} row {number}"


def _read_parquet(content: bytes, path: Path) -> _Found:
    parquet: Any = import_module("pyarrow.parquet")
    try:
        rows: list[dict[str, Any]] = parquet.read_table(io.BytesIO(content)).to_pylist()
    except (OSError, ValueError) as error:  # what Arrow raises is one of these, too
        raise DataError(f"{path} is not Parquet ({error})") from error
    yield from ((row, f"{path.name} row {number}") for number, row in enumerate(rows, start=1))


def _read_csv(content: bytes, path: Path) -> _Found:
    text = _decode(content, path)
    header_line = text.lstrip().partition("\n")[0]
    marks = "\t" if ".tsv" in path.name.lower() else ",;\t"
    delimiter = next((mark for mark in marks if mark in header_line), marks[0])
    lines = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=delimiter)
    header: list[str] | None = None
    while True:
        try:
            cells = next(lines, None)
        except csv.Error as error:
            yield _Fault(error), f"{path.name}:{lines.line_num}"
            continue
        if cells is None:
            return
        if not any(cell.strip() for cell in cells):
            continue
        if header is None:
            header = [cell.strip() for cell in cells]
            repeated = sorted({name for name in header if name and header.count(name) > 1})
            if repeated:
                raise DataError(f"{path} has two columns of one name", got=repeated[0])
            continue
        values: object = dict(zip(header, cells, strict=False))
        if len(cells) != len(header):
            values = _Fault(f"{len(cells)} cells under {len(header)} columns")
        yield values, f"{path.name}:{lines.line_num}"
