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
    """A row as it was found."""

    values: Mapping[str, Any]  # by column; nobody changes them
    where: str  # file and line, for messages
    folder: Path = Path()  # that the paths of pictures are relative to
    file: str = ""  # name of the file without its suffix
    source: str = ""  # file, or data set and split, it is counted under
    split: str = "train"  # that it is of as given
    is_test_part: bool = False  # whether its file or split is called a test, whatever it is for
    pictures: tuple[Path, ...] = ()  # files that it names, where it is only asked about


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
    tables = [path for path in tables if path.name == "index.jsonl"] or tables
    if len(tables) != 1:
        raise DataError(
            f"cannot tell which file lists the pictures of {root}",
            got=", ".join(path.name for path in tables) or "no such file",
            expected="index.jsonl, or exactly one .csv or .jsonl file",
        )
    return tables[0]


def read_source(settings: TableSettings, drops: DropLog) -> list[Row]:
    """Return all rows with their splits, pictures of the hub as bytes or paths; at least one."""
    rows: list[Row] = []
    if name := settings.hub:
        parts = open_dataset(name, subset=settings.subset, revision=settings.revision)
        used = [(s, p) for s in SPLITS for p in parts if p in settings.splits.get(s, ())]
        if not used:
            raise DataError(
                f"{name} has no split that is used",
                got=", ".join(parts),
                expected=f"one of data.splits: {dict(settings.splits)}",
            )
        for split, part in used:
            source, folder = f"{name} {part}", Path(name)
            of = (folder, folder.name, source, split, bool(TEST_PART.search(part)))
            found = enumerate(list_rows(parts[part]), start=1)
            rows += [Row(values, f"{source} row {number}", *of) for number, values in found]
    for split, patterns in settings.files.items():
        for path in (path for pattern in patterns for path in find_tables(pattern)):
            rows += [replace(row, split=split) for row in read_table_rows(path, drops)]
    if not rows:
        places = name or ", ".join(f for files in settings.files.values() for f in files)
        raise DataError(f"{places} has no rows", got=drops.counts or None)
    return rows


def find_tables(pattern: str) -> list[Path]:
    """Return the tables that a path, a folder or a pattern names, sorted; at least one."""
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


def open_dataset(
    name: str, *, subset: str | None = None, revision: str | None = None
) -> Mapping[str, Any]:
    """Return the splits of a data set of the hub, or of a folder with one.

    Raises:
        DataError: if it cannot be read.
    """
    datasets: Any = import_module("datasets")
    try:
        if any((Path(name) / file).is_file() for file in ("dataset_dict.json", "state.json")):
            found = datasets.load_from_disk(name)
        else:
            found = datasets.load_dataset(name, subset, revision=revision)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise DataError(
            f"cannot read the data set {name} ({' '.join(str(error).split())})",
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


@lru_cache(_NUM_KEPT)
def _read_file(
    path: Path, kind: str, state: tuple[int, ...] | None
) -> tuple[list[Row], list[Drop]]:
    """Return the rows of a file in a state, and the lines that cannot be read."""
    del state  # another one is another file
    content = path.read_bytes()
    content = gzip.decompress(content) if path.suffix.lower() == ".gz" else content
    read = {".parquet": _read_parquet, ".json": _read_json, ".csv": _read_csv, ".tsv": _read_csv}
    is_test = any(TEST_PART.search(part) for part in (path.name, path.parent.name))
    of: dict[str, Any] = {"folder": path.parent, "file": path.name.partition(".")[0]}
    of |= {"source": path.name, "is_test_part": is_test}
    rows, drops = list[Row](), DropLog()
    for values, place in read.get(kind, _read_jsonl)(content, path):
        if isinstance(values, dict):
            rows.append(Row(cast("dict[str, Any]", values), f"{path.name}{place}", **of))
        else:
            fault = values if isinstance(values, _Fault) else "not a JSON object"
            drops.add("line cannot be read", f"{path.name}{place} ({fault})")
    return rows, drops.rows


class _Fault(str):
    """What is wrong with a line, in the place of its values."""


_Found = Iterator[tuple[object, str]]
"""Values of rows, each with its place in the file."""


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


def _read_parquet(content: bytes, path: Path) -> _Found:
    parquet: Any = import_module("pyarrow.parquet")
    try:
        rows: list[dict[str, Any]] = parquet.read_table(io.BytesIO(content)).to_pylist()
    except (OSError, ValueError) as error:  # what Arrow raises is one of these, too
        raise DataError(f"{path} is not Parquet ({error})") from error
    yield from ((row, f" row {number}") for number, row in enumerate(rows, start=1))


def _read_json(content: bytes, path: Path) -> _Found:
    try:
        rows: Any = json.loads(_decode(content, path))
    except (json.JSONDecodeError, RecursionError) as error:
        raise DataError(f"{path} is not JSON ({error})") from error
    if not isinstance(rows, list):
        raise DataError(f"{path} is no table", got=type(rows).__name__, expected="a list of rows")
    found = enumerate(cast("list[object]", rows), start=1)
    yield from ((row, f" row {number}") for number, row in found)


def _read_jsonl(content: bytes, path: Path) -> _Found:
    def refuse_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        values = dict(pairs)
        if len(values) < len(pairs):
            names = [name for name, _ in pairs]
            raise ValueError(f"{next(n for n in names if names.count(n) > 1)} appears twice")
        return values

    for number, line in enumerate(_decode(content, path, by_line=True).split("\n"), 1):
        if not line.strip(string.whitespace):
            continue
        try:
            line.encode()
            values: object = json.loads(line, object_pairs_hook=refuse_repeated)
        except (json.JSONDecodeError, UnicodeEncodeError, RecursionError):
            values = _Fault("not JSON")
        except ValueError as error:
            values = _Fault(error)
        yield values, f":{number}"


def _read_csv(content: bytes, path: Path) -> _Found:
    text = _decode(content, path)
    header_line = text.lstrip().partition("\n")[0]
    marks = "\t" if ".tsv" in path.name.lower() else ",;\t"
    delimiter = next((mark for mark in marks if mark in header_line), marks[0])
    lines = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=delimiter)
    header: list[str] = []
    while True:
        try:
            cells = next(lines, None)
        except csv.Error as error:
            yield _Fault(error), f":{lines.line_num}"
            continue
        if cells is None:
            return
        if not any(cell.strip() for cell in cells):
            continue
        if header:
            is_whole = len(cells) == len(header)
            fault = _Fault(f"{len(cells)} cells under {len(header)} columns")
            yield dict(zip(header, cells, strict=True)) if is_whole else fault, f":{lines.line_num}"
            continue
        header = [cell.strip() for cell in cells]
        repeated = sorted({name for name in header if name and header.count(name) > 1})
        if repeated:
            raise DataError(f"{path} has two columns of one name", got=repeated[0])
