"""Reading files that another process is writing: only what is new, never half a line."""

import json
import os
from pathlib import Path
from typing import Any

JsonObject = dict[str, Any]


class RowTail:
    """Reads the rows of a growing JSONL file once each.

    A last line that is not finished yet waits for the next call. A file that was replaced or cut
    (training goes on from a checkpoint) is read from its start again.

    Attributes:
        num_damaged: finished lines that are no JSON objects; they are left out.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.num_damaged = 0
        self._offset = 0
        self._file_id: int | None = None

    def read_new(self) -> tuple[list[JsonObject], bool]:
        """Return the rows since the last call, and whether they replace all rows before."""
        try:
            with self.path.open("rb") as stream:
                found = os.fstat(stream.fileno())
                is_replaced = self._start_again(found.st_ino, found.st_size)
                stream.seek(self._offset)
                block = stream.read()
        except OSError:
            is_known = self._file_id is not None
            self._file_id, self._offset, self.num_damaged = None, 0, 0
            return [], is_known
        whole, _, _ = block.rpartition(b"\n")
        self._offset += len(whole) + 1 if whole or block.startswith(b"\n") else 0
        return self._parse(whole), is_replaced

    def _start_again(self, file_id: int, size: int) -> bool:
        """Go back to the start of a file that is another one or has become shorter."""
        is_same = self._file_id in (None, file_id) and size >= self._offset
        self._file_id = file_id
        if not is_same:
            self._offset, self.num_damaged = 0, 0
        return not is_same

    def _parse(self, block: bytes) -> list[JsonObject]:
        rows: list[JsonObject] = []
        for line in block.split(b"\n"):
            row = parse_object(line)
            if row is not None:
                rows.append(row)
            elif line.strip():
                self.num_damaged += 1
        return rows


class JsonFile:
    """Reads a small JSON file again only when it has changed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stamp: tuple[int, int, int] | None = None
        self._value: JsonObject | None = None

    def read(self) -> JsonObject | None:
        """Return the object in the file, None if it is not there or cannot be read."""
        try:
            found = self.path.stat()
            stamp = found.st_ino, found.st_mtime_ns, found.st_size
            if stamp != self._stamp:
                self._value, self._stamp = parse_object(self.path.read_bytes()), stamp
        except OSError:
            self._value = self._stamp = None
        return self._value


def parse_object(text: bytes) -> JsonObject | None:
    """Return a JSON object, None if ``text`` is anything else."""
    try:
        value: Any = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None  # pyright: ignore[reportUnknownVariableType]
