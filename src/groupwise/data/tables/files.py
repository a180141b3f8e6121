"""Reads rows from JSONL, JSON, CSV, TSV and Parquet files, packed with gzip or not.

It knows lines and cells, not what they mean. A line that cannot be read is dropped and counted.
"""

import csv
import gzip
import io
import json
import string
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from groupwise.core import DataError
from groupwise.data.drops import DropLog

BAD_LINE = "line cannot be read"
SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet")

_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
# Of real Chinese text nearly all is among the common characters of GB 2312's first level, whose
# first byte is at most 0xd7; Latin letters read as Chinese are not.
_LAST_COMMON = 0xD7
_MIN_COMMON_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class TableRow:
    """One row of a file: its values by column, and its place for messages."""

    values: dict[str, Any]
    where: str


def find_index(root: Path) -> Path:
    """Return the index file of a data folder."""
    if not root.is_dir():
        found = "a file" if root.exists() else "nothing"
        raise DataError(
            f"{root} is not a data folder",
            got=f"{found} there",
            fix="give the folder that holds index.jsonl",
        )
    if (root / "index.jsonl").is_file():
        return root / "index.jsonl"
    tables = sorted(
        path
        for path in root.iterdir()
        if path.suffix.lower() in {".csv", ".jsonl"} and path.is_file()
    )
    if len(tables) != 1:
        names = ", ".join(path.name for path in tables) or "no such file"
        raise DataError(
            f"cannot tell which file lists the pictures of {root}",
            got=names,
            expected="index.jsonl, or exactly one .csv or .jsonl file",
        )
    return tables[0]


def read_table_rows(path: Path, drops: DropLog, *, encoding: str | None = None) -> list[TableRow]:
    """Return the readable rows of a file; the others go to ``drops``.

    Blank lines are no rows. The kind of file is told by its suffix (``SUFFIXES``, and ``.gz``
    behind them). A CSV file without a comma in its header may have semicolons or tabs.

    Args:
        path: the file.
        drops: where lines that cannot be read go.
        encoding: of texts; None: UTF-8, with or without a byte order mark, or Chinese GB 18030.

    Raises:
        DataError: if the file cannot be read, is of another kind, or its encoding is not known.
    """
    kind = find_kind(path)
    try:
        content = path.read_bytes()
        content = gzip.decompress(content) if path.suffix.lower() == ".gz" else content
    except (OSError, EOFError, ValueError) as error:
        raise DataError(f"cannot read {path} ({error})") from error
    if kind == ".parquet":
        return _read_parquet(content, path)
    if kind in (".jsonl", ".ndjson"):
        return list(_read_jsonl(_decode_lines(content, path, encoding), path.name, drops))
    text = _decode(content, path, encoding)
    if kind == ".json":
        return list(_read_json(text, path, drops))
    return list(_read_csv(text, path, drops))


def find_kind(path: Path) -> str:
    """Return the suffix that tells the kind of a file, without ``.gz``."""
    name = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    if name.suffix.lower() not in SUFFIXES:
        raise DataError(
            f"{path} is no table", got=name.suffix or "no suffix", expected=", ".join(SUFFIXES)
        )
    return name.suffix.lower()


def _decode(content: bytes, path: Path, encoding: str | None) -> str:
    fix = "save it as UTF-8, or name its encoding (data.encoding)"
    if encoding is None and content.startswith(_UTF_16):
        raise DataError(f"{path} is UTF-16", expected="UTF-8", fix=fix)
    try:
        return content.decode(encoding or "utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        chinese = None if encoding else _decode_chinese(content)
        if chinese is not None:
            return chinese
        raise DataError(f"{path} is not {encoding or 'UTF-8'} ({error})", fix=fix) from error


def _decode_lines(content: bytes, path: Path, encoding: str | None) -> str:
    """Decode what has a row per line, where one bad line does not spoil the others."""
    try:
        return _decode(content, path, encoding)
    except DataError:
        if encoding is not None or content.startswith(_UTF_16):
            raise
        return content.decode("utf-8", "surrogateescape").removeprefix("\ufeff")


def _decode_chinese(content: bytes) -> str | None:
    """Return the text if it is Chinese in GB 18030; nearly any bytes are *some* text in it."""
    try:
        text = content.decode("gb18030")
    except UnicodeDecodeError:
        return None
    rest = "".join(character for character in text if not character.isascii())
    is_common = [0 < ord(c.encode("gb2312", "ignore")[:1] or b"\0") <= _LAST_COMMON for c in rest]
    return text if sum(is_common) >= _MIN_COMMON_SHARE * len(rest) else None


def _read_jsonl(text: str, name: str, drops: DropLog) -> Iterator[TableRow]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip(string.whitespace):
            continue
        where = f"{name}:{number}"
        try:
            line.encode()
            value: object = json.loads(line, object_pairs_hook=_refuse_repeated)
        except (ValueError, RecursionError) as error:
            detail = error if isinstance(error, _RepeatedKeyError) else "not JSON"
            drops.add(BAD_LINE, f"{where} ({detail})")
            continue
        if isinstance(value, dict):
            yield TableRow(cast("dict[str, Any]", value), where)
        else:
            drops.add(BAD_LINE, f"{where} (not a JSON object)")


class _RepeatedKeyError(ValueError):
    """An object that says two things under one name."""


def _refuse_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in found if names.count(name) > 1)
        raise _RepeatedKeyError(f"{repeated} appears twice")
    return found


def _read_json(text: str, path: Path, drops: DropLog) -> Iterator[TableRow]:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not JSON ({error})") from error
    if not isinstance(value, list):
        raise DataError(f"{path} is no table", got=type(value).__name__, expected="a list of rows")
    for number, row in enumerate(cast("list[object]", value), start=1):
        where = f"{path.name} row {number}"
        if isinstance(row, dict):
            yield TableRow(cast("dict[str, Any]", row), where)
        else:
            drops.add(BAD_LINE, f"{where} (not a JSON object)")


def _read_parquet(content: bytes, path: Path) -> list[TableRow]:
    parquet: Any = import_module("pyarrow.parquet")
    try:
        rows: list[dict[str, Any]] = parquet.read_table(io.BytesIO(content)).to_pylist()
    except (OSError, ValueError) as error:  # what Arrow raises is one of these, too
        raise DataError(f"{path} is not Parquet ({error})") from error
    return [TableRow(row, f"{path.name} row {number}") for number, row in enumerate(rows, start=1)]


def _read_csv(text: str, path: Path, drops: DropLog) -> Iterator[TableRow]:
    delimiter = _find_delimiter(text, path)
    lines = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=delimiter)
    header: list[str] | None = None
    while True:
        try:
            cells = next(lines, None)
        except csv.Error as error:
            drops.add(BAD_LINE, f"{path.name}:{lines.line_num} ({error})")
            continue
        if cells is None:
            return
        if not any(cell.strip() for cell in cells):
            continue
        if header is None:
            header = _read_header(cells, path)
        elif len(cells) != len(header):
            found = f"{len(cells)} cells under {len(header)} columns"
            drops.add(BAD_LINE, f"{path.name}:{lines.line_num} ({found})")
        else:
            yield TableRow(dict(zip(header, cells, strict=True)), f"{path.name}:{lines.line_num}")


def _find_delimiter(text: str, path: Path) -> str:
    if find_kind(path) == ".tsv":
        return "\t"
    header = text.lstrip().partition("\n")[0]
    return next((mark for mark in ",;\t" if mark in header), ",")


def _read_header(cells: list[str], path: Path) -> list[str]:
    header = [cell.strip() for cell in cells]
    repeated = sorted({name for name in header if name and header.count(name) > 1})
    if repeated:
        raise DataError(f"{path} has two columns of one name", got=repeated[0])
    return header
