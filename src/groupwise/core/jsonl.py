"""JSON, JSONL and text files that survive a crash.

Whole files are replaced atomically. JSONL files that grow are flushed row by row, and a
last line torn by a crash is dropped on reading and cut off before the next append.
"""

import json
import os
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, overload

from groupwise.core.errors import DataError

_BLOCK = 65536


def write_text(path: Path, text: str) -> None:
    """Replace ``path`` by ``text`` atomically, so that a reader sees the old or the new file."""
    replace_file(path, [text.encode()])


def replace_file(path: Path, parts: Iterable[bytes]) -> None:
    """Replace ``path`` atomically by what ``parts`` give, which may still read the old file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with _name_file(path), part.open("wb") as stream:
            stream.writelines(parts)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def write_json(path: Path, value: object) -> None:
    """Replace ``path`` by a JSON value, indented, with a final newline."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_jsonl(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Replace ``path`` by one JSON object per line, atomically."""
    write_text(path, "".join(_to_line(row) for row in rows))


def append_jsonl(path: Path, row: Mapping[str, Any]) -> None:
    """Append one row and flush it to disk; a torn last line is cut off first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _name_file(path), path.open("ab+") as stream:
        _cut_torn_line(stream.fileno())
        stream.write(_to_line(row).encode())
        stream.flush()
        os.fsync(stream.fileno())


@contextmanager
def _name_file(path: Path) -> Generator[None]:
    """Let errors say which file it was: those of writing do not know its name."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


@overload
def read_json(path: Path, kind: type[dict[Any, Any]]) -> dict[str, Any]: ...
@overload
def read_json(path: Path, kind: type[list[Any]]) -> list[Any]: ...
def read_json(path: Path, kind: type[Any]) -> Any:
    """Return the JSON value of a file.

    Args:
        path: the file.
        kind: what it holds: ``dict`` or ``list``.

    Raises:
        DataError: if the file cannot be read, is not JSON, or holds something else.
    """
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise DataError(f"cannot read {path} ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not JSON ({error})", fix="make it again") from error
    if not isinstance(value, kind):
        expected = "a JSON object" if kind is dict else "a JSON list"
        raise DataError(f"{path} is not {expected}", got=type(value).__name__)
    return value


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """Return all rows; a last line without its newline that does not parse is left out.

    Raises:
        DataError: if the file is missing, or another line is not a JSON object.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise DataError(f"cannot read {path} ({error.strerror})") from error
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        row = _parse_object(line)
        if row is not None:
            rows.append(row)
        elif number < len(lines):
            raise DataError(f"{path} line {number} is not a JSON object", got=repr(line[:80]))
    return rows


def _parse_object(line: bytes) -> dict[str, Any] | None:
    try:
        value: object = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None  # pyright: ignore[reportUnknownVariableType]


def _to_line(row: Mapping[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n"


def _cut_torn_line(descriptor: int) -> None:
    """Make the file end in a newline: complete a whole last row, cut off half of one."""
    size = os.fstat(descriptor).st_size
    end = _find_line_start(descriptor, size)
    if end == size:
        return
    if _parse_object(os.pread(descriptor, size - end, end)) is None:
        os.ftruncate(descriptor, end)
    else:
        os.write(descriptor, b"\n")


def _find_line_start(descriptor: int, size: int) -> int:
    """Return where the last, unfinished line starts (``size`` if the file ends in a newline)."""
    end = size
    while end > 0:
        start = max(0, end - _BLOCK)
        newline = os.pread(descriptor, end - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0
