"""Finds the rows of a published set in files or on the hub, each with the part it is of."""

import csv
import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from groupwise.core import DataError, read_json
from groupwise.data.drops import DropLog
from groupwise.data.tables.files import SUFFIXES, read_table_rows
from groupwise.data.tables.sources import open_dataset
from groupwise.data.tables.values import UnusableRowError, clean_value

_PART = re.compile(
    r"(?<![a-z])(auxiliary_train|train|test|validation|valid|val|dev|prompt)(?![a-z])",
    re.IGNORECASE,
)
_LETTERS = "ABCDEFGHIJ"


@dataclass(frozen=True, slots=True)
class SetRow:
    """A row as it was found.

    Attributes:
        values: by column.
        where: file and line, or data set and row.
        part: as its publisher calls it (``train``, ``dev``); empty if nothing says so.
        group: the file's name without the part (of MMLU, the subject).
        name: its place within the set, no other row's.
    """

    values: Mapping[str, Any]
    where: str
    part: str
    group: str
    name: str

    def require_text(self, column: str) -> str:
        """Return a value as text without outer spaces."""
        value = self.values.get(column)
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = str(value)
        if not isinstance(value, str) or not value.strip():
            raise UnusableRowError(f"the column {column} is missing", self.where)
        return value.strip()

    def list_texts(self, column: str) -> list[str]:
        """Return a value that is a list of texts; a missing one is empty."""
        value: object = self.values.get(column) or []
        texts = cast("list[object]", value) if isinstance(value, list) else [None]
        if not all(isinstance(text, str) for text in texts):
            raise UnusableRowError("a column is no list of texts", column)
        return cast("list[str]", texts)


def read_hub(name: str, subset: str | None) -> Iterator[SetRow]:
    """Yield the rows of a data set of the hub, or of a folder with one."""
    for part, rows in open_dataset(name, subset=subset).items():
        for number, values in enumerate(rows.with_format("arrow")[:].to_pylist(), start=1):
            place = "/".join(filter(None, (subset, part, str(number))))
            yield SetRow(clean_value(values), f"{name} {part} row {number}", part, "", place)


def read_files(path: Path, drops: DropLog) -> Iterator[SetRow]:
    """Yield the rows of a file, or of all tables in a folder and the folders in it."""
    endings = (*SUFFIXES, *(f"{suffix}.gz" for suffix in SUFFIXES))
    found = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    tables = [p for p in found if p.name.lower().endswith(endings)]
    if not tables:
        raise DataError(
            f"there is no table at {path}", expected=f"files with {', '.join(SUFFIXES)}"
        )
    for table in tables:
        part = _find_part(table, path)
        place = (table.relative_to(path) if table != path else Path(table.name)).as_posix()
        group = re.sub(rf"_?{part}$", "", table.name.partition(".")[0]) if part else table.stem
        for number, (values, where) in enumerate(_read_table(table, drops), start=1):
            yield SetRow(values, where, part, group, f"{place.partition('.')[0]}/{number}")


def _find_part(table: Path, root: Path) -> str:
    """Return the part that the nearest name tells: the file's, else that of a folder around it.

    Folders that lie outside what was given have other names for other reasons, but for one that
    is called nothing else.
    """
    inside = table.relative_to(root).parts[:-1]
    outer = root.parent.name if table == root else root.name
    found = [_PART.search(name) for name in (table.name, *reversed(inside))]
    match = next(filter(None, [*found, _PART.fullmatch(outer)]), None)
    return match[1].lower() if match else ""


def _read_table(path: Path, drops: DropLog) -> Iterator[tuple[Mapping[str, Any], str]]:
    if path.suffix.lower() == ".csv" and (lines := _read_plain_choices(path)) is not None:
        yield from lines
    elif path.suffix.lower() == ".json" and (values := _read_object(path)) is not None:
        for number, row in enumerate(_flatten_articles(values), start=1):
            yield row, f"{path.parent.name}/{path.name} row {number}"
    else:
        for row in read_table_rows(path, drops):
            yield clean_value(row.values), row.where


def _read_plain_choices(path: Path) -> list[tuple[Mapping[str, Any], str]] | None:
    """Return the rows of a CSV file as MMLU publishes it: no header, and the letter is last."""
    text = path.read_text(encoding="utf-8-sig", errors="replace")
    lines = [line for line in csv.reader(io.StringIO(text, newline="")) if line]
    if not lines or len(lines[0]) < 3 or lines[0][-1].strip() not in _LETTERS[: len(lines[0]) - 2]:
        return None
    return [
        ({"question": line[0], "choices": line[1:-1], "answer": line[-1]}, f"{path.name} row {n}")
        for n, line in enumerate(lines, start=1)
    ]


def _read_object(path: Path) -> dict[str, Any] | None:
    """Return what a file holds if it is one JSON object; a list of rows is a table."""
    with path.open(encoding="utf-8-sig") as file:
        is_object = file.read(64).lstrip().startswith("{")
    return read_json(path, dict) if is_object else None


def _flatten_articles(values: dict[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the questions of SQuAD's articles in the hub's flat form; another object is a row."""
    if "data" not in values:
        yield values
        return
    for article in values["data"]:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                texts = [answer["text"] for answer in question.get("answers", [])]
                yield {
                    "id": question["id"],
                    "title": article["title"],
                    "context": paragraph["context"],
                    "question": question["question"],
                    "answers": {"text": texts},
                }
