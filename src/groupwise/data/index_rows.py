"""Reads the index of a data folder: ``index.jsonl``, or its one CSV or JSONL file.

It knows lines and cells, not what they mean. A line that cannot be read is dropped and counted.
"""

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from groupwise.core import DataError
from groupwise.data.drops import DropLog

BAD_LINE = "line cannot be read"


@dataclass(frozen=True, slots=True)
class IndexRow:
    """One row of an index: its values by column, and its place for messages."""

    values: dict[str, Any]
    where: str


def find_index(root: Path) -> Path:
    """Return the index file of a data folder.

    Raises:
        DataError: if the folder is missing or holds no index, or several that could be it.
    """
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


def read_rows(index: Path, drops: DropLog) -> list[IndexRow]:
    """Return the readable rows of an index; the others go to ``drops``.

    Blank lines are no rows. Texts are UTF-8, with or without a byte order mark.

    Raises:
        DataError: if the file cannot be read or, for a CSV, is not UTF-8.
    """
    try:
        content = index.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {index} ({error.strerror})") from error
    content = content.removeprefix(b"\xef\xbb\xbf")
    if index.suffix.lower() == ".csv":
        return list(_read_csv(content, index, drops))
    return list(_read_jsonl(content, index.name, drops))


def _read_jsonl(content: bytes, name: str, drops: DropLog) -> Iterator[IndexRow]:
    for number, line in enumerate(content.split(b"\n"), start=1):
        if not line.strip():
            continue
        where = f"{name}:{number}"
        try:
            value: object = json.loads(line)
        except (ValueError, RecursionError):
            drops.add(BAD_LINE, f"{where} (not JSON)")
            continue
        if isinstance(value, dict):
            yield IndexRow(cast("dict[str, Any]", value), where)
        else:
            drops.add(BAD_LINE, f"{where} (not a JSON object)")


def _read_csv(content: bytes, index: Path, drops: DropLog) -> Iterator[IndexRow]:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{index} is not UTF-8 ({error})", fix="save it as CSV UTF-8") from error
    lines = csv.reader(io.StringIO(text, newline=""), strict=True)
    header: list[str] | None = None
    while True:
        try:
            cells = next(lines, None)
        except csv.Error as error:
            drops.add(BAD_LINE, f"{index.name}:{lines.line_num} ({error})")
            continue
        if cells is None:
            return
        if not any(cell.strip() for cell in cells):
            continue
        if header is None:
            header = _read_header(cells, index)
        elif len(cells) != len(header):
            found = f"{len(cells)} cells under {len(header)} columns"
            drops.add(BAD_LINE, f"{index.name}:{lines.line_num} ({found})")
        else:
            yield IndexRow(dict(zip(header, cells, strict=True)), f"{index.name}:{lines.line_num}")


def _read_header(cells: list[str], index: Path) -> list[str]:
    header = [cell.strip() for cell in cells]
    repeated = sorted({name for name in header if name and header.count(name) > 1})
    if repeated:
        raise DataError(f"{index} has two columns of one name", got=repeated[0])
    return header
