"""Replies of judges on disk: keyed by content, shared by several processes, bounded in size.

SQLite in WAL mode: a process that is killed in the middle of a write leaves the file as it was
before. Nothing that failed is stored. The folder must be on a disk of this machine.
"""

import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from groupwise.core import JudgeError

_SCHEMA = """
CREATE TABLE IF NOT EXISTS replies (
    key TEXT PRIMARY KEY, value TEXT NOT NULL, num_bytes INTEGER NOT NULL, used_at REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS replies_by_use ON replies (used_at);
CREATE TABLE IF NOT EXISTS total (one INTEGER PRIMARY KEY CHECK (one = 1), num_bytes INTEGER);
INSERT OR IGNORE INTO total VALUES (1, 0);
"""
_BUSY_TIMEOUT_S = 60.0
_TOUCH_AFTER_S = 60.0
_KEPT_SHARE = 0.9
_ADD_UP = "UPDATE total SET num_bytes = (SELECT coalesce(sum(num_bytes), 0) FROM replies)"
_DROP_OLDEST = """
DELETE FROM replies WHERE key IN (
    SELECT key FROM (
        SELECT key, sum(num_bytes) OVER (ORDER BY used_at DESC, key DESC) AS so_far FROM replies
    ) WHERE so_far > ?
)
"""


class ReplyCache:
    """A file of replies; any number of processes may use it at once.

    Args:
        path: of the file; it is made if it does not exist.
        max_mib: of keys and values. When it is passed, the replies that were not used for longest
            go, until a tenth is free. The file itself may be somewhat larger and does not shrink.
        clock: seconds since the epoch.

    Raises:
        JudgeError: if the file cannot be opened or is no cache.
    """

    def __init__(
        self, path: Path, *, max_mib: float = 256.0, clock: Callable[[], float] = time.time
    ) -> None:
        self.path = path
        self.num_hits = 0
        self.num_misses = 0
        self._max_bytes = int(max_mib * 2**20)
        self._clock = clock
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._connection = self._open()

    @property
    def hit_rate(self) -> float | None:
        """Share of look-ups by this object that found a reply; None before the first."""
        total = self.num_hits + self.num_misses
        return self.num_hits / total if total else None

    def get(self, key: str) -> dict[str, Any] | None:
        """Return the reply stored under ``key``, or None."""
        with self._use() as connection:
            query = "SELECT value, used_at FROM replies WHERE key = ?"
            row = connection.execute(query, (key,)).fetchone()
            if row is None:
                self.num_misses += 1
                return None
            self.num_hits += 1
            now = self._clock()
            if now - row[1] > _TOUCH_AFTER_S:
                connection.execute("UPDATE replies SET used_at = ? WHERE key = ?", (now, key))
            return json.loads(row[0])

    def put(self, key: str, value: Mapping[str, Any]) -> None:
        """Store a reply; what is there under this key already stays."""
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        num_bytes = len(text.encode()) + len(key.encode())
        with self._use() as connection, connection:  # committed at its end, or rolled back
            connection.execute("BEGIN IMMEDIATE")
            added = connection.execute(
                "INSERT OR IGNORE INTO replies VALUES (?, ?, ?, ?)",
                (key, text, num_bytes, self._clock()),
            ).rowcount
            if not added:
                return
            connection.execute("UPDATE total SET num_bytes = num_bytes + ?", (num_bytes,))
            (total,) = connection.execute("SELECT num_bytes FROM total").fetchone()
            if total > self._max_bytes:
                connection.execute(_DROP_OLDEST, (self._max_bytes * _KEPT_SHARE,))
                connection.execute(_ADD_UP)

    @contextmanager
    def _use(self) -> Generator[sqlite3.Connection]:
        """Give this process's connection (SQLite's do not survive a fork) and name the file."""
        try:
            if self._process != os.getpid():
                self._process = os.getpid()
                self._lock = threading.Lock()
                self._connection = self._open()
            with self._lock:
                yield self._connection
        except (sqlite3.Error, ValueError) as error:
            raise self._describe(error) from error

    def _open(self) -> sqlite3.Connection:
        """Return a connection in WAL mode.

        SQLite refuses at once to switch where another process does so just now, whatever its
        timeout is: try again.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(
                self.path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
            )
            last_try = time.monotonic() + _BUSY_TIMEOUT_S
            while True:
                try:
                    connection.execute("PRAGMA journal_mode = WAL")
                    break
                except sqlite3.OperationalError as error:
                    is_busy = error.sqlite_errorcode == sqlite3.SQLITE_BUSY
                    if not is_busy or time.monotonic() > last_try:
                        raise
                    time.sleep(0.01)
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")
        except (sqlite3.Error, OSError) as error:
            raise self._describe(error) from error
        return connection

    def _describe(self, error: Exception) -> JudgeError:
        return JudgeError(
            f"the cache {self.path} cannot be used ({error})",
            fix="free the disk it is on, or move the file away: it is made again",
        )
