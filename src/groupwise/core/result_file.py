"""A JSONL file of finished items that one process fills and any later one continues.

It says which items need no more work. It does not know what the items are or who makes them.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from groupwise.core.errors import DataError, RunError
from groupwise.core.files import append_jsonl, read_jsonl, take_lock, write_jsonl


class ResultFile:
    """An append-only JSONL file with one row per item, held by this process until closed.

    Every row is on disk when ``append`` returns. A row whose ``failed`` is set is only a note: the
    item may be appended again, and the new row then takes the place of the old one (in the file
    itself when it is closed or next opened). Finished rows are never changed or dropped. A last
    line torn by a crash is cut off when the file is opened.

    Args:
        path: the file; made if missing.
        key: name of the string that tells items apart, or what makes that string of a row.

    Attributes:
        finished: ids of the items that need no more work.
        failed: ids of the items to be tried again.

    Raises:
        RunError: if another process holds the file, or it cannot be written.
        DataError: if a line is no row, or follows the finished row of the same item.
    """

    def __init__(
        self, path: Path, key: str | Callable[[Mapping[str, Any]], str] = "group_id"
    ) -> None:
        self.path, self.key = path, key
        self.finished: set[str] = set()
        self.failed: set[str] = set()
        self._has_replaced = False
        fix = "wait for it or write to another file"
        busy = RunError(f"another process is writing {path}", fix=fix)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.open("ab").close()
            lock = path.with_name(f".{path.name}.lock")
            self._lock: int | None = take_lock(lock, busy=busy)
        except OSError as error:
            raise RunError(f"cannot write {path} ({error.strerror})") from error
        try:
            for number, row in enumerate(read_jsonl(path), start=1):
                self._count(self._identify(row, f"row {number} of {path}"), row)
            with path.open("rb") as stream:  # the last line may be torn, or lack its newline
                if stream.seek(0, os.SEEK_END):
                    stream.seek(-1, os.SEEK_END)
                    self._has_replaced |= stream.read() != b"\n"
            self._drop_replaced()
        except BaseException:
            self._unlock()
            raise

    def append(self, row: Mapping[str, Any]) -> None:
        """Write one row to disk.

        Raises:
            DataError: if it has no key, or its item is finished already.
            RunError: if the file is closed.
        """
        if self._lock is None:
            raise RunError(f"{self.path} is closed")
        name = self._identify(row, f"a row for {self.path}")
        append_jsonl(self.path, row)
        self._count(name, row)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield one row per item, each in the place of the item's first row."""
        yield from {self._name(row): row for row in read_jsonl(self.path)}.values()

    def close(self) -> None:
        """Drop rows that were replaced, and let the file go."""
        if self._lock is not None:
            try:
                self._drop_replaced()
            finally:
                self._unlock()

    def __enter__(self) -> Self:
        """Return the file."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self.close()

    def _name(self, row: Mapping[str, Any]) -> object:
        return self.key(row) if callable(self.key) else row.get(self.key)

    def _identify(self, row: Mapping[str, Any], where: str) -> str:
        """Return the name of the row's item, which is not finished."""
        name = self._name(row)
        if not isinstance(name, str):
            raise DataError(f"{where} has no {self.key}", got=repr(name), expected="a string")
        if name in self.finished:
            raise DataError(f"{where} is one more of {name}, which is finished")
        return name

    def _count(self, name: str, row: Mapping[str, Any]) -> None:
        self._has_replaced |= name in self.failed
        self.failed.discard(name)
        (self.failed if row.get("failed") else self.finished).add(name)

    def _drop_replaced(self) -> None:
        """Write the file again without what was replaced or torn, if there is any of it."""
        if self._has_replaced:
            write_jsonl(self.path, self.rows())
        self._has_replaced = False

    def _unlock(self) -> None:
        descriptor, self._lock = self._lock, None
        if descriptor is not None:
            os.close(descriptor)
