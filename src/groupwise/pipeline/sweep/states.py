"""``states.jsonl``: what became of every cell, one row per change, for everyone who looks on.

The cells' folders are the truth about finished work; a row that is lost or damaged costs nothing
but a look into the folder.
"""

import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from groupwise.core import append_jsonl, take_lock
from groupwise.pipeline.step_files import describe_now

CellState = Literal["done", "failed", "running", "waiting"]

_FILE = "states.jsonl"
_LOCK = ".states.lock"
_ENDED = ("Z", "X", "x")
# Field 22 of /proc/PID/stat; the split text starts with field 3.
_BEGIN = 19
_STATES = ("done", "failed", "running", "waiting")


def append_state(sweep: Path, cell: str, state: CellState, **more: Any) -> None:
    """Append a row; several processes may do so at once."""
    descriptor = take_lock(sweep / _LOCK, busy=lambda: None)
    try:
        row = {"cell": cell, "state": state, "at": describe_now(), **more}
        append_jsonl(sweep / _FILE, row)
    finally:
        os.close(descriptor)


def read_states(sweep: Path) -> tuple[dict[str, dict[str, Any]], int]:
    """Return the last whole row of every cell, and how many lines are damaged."""
    try:
        lines = (sweep / _FILE).read_bytes().splitlines()
    except FileNotFoundError:
        return {}, 0
    rows = [_parse_row(line) for line in lines if line.strip()]
    return {row["cell"]: row for row in rows if row is not None}, rows.count(None)


def _parse_row(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    is_whole = isinstance(row, dict) and isinstance(row.get("cell"), str)
    return row if is_whole and row.get("state") in _STATES else None


def describe_process(pid: int) -> dict[str, Any]:
    """Return what tells a process from all others: host, number and when it began."""
    return {"host": socket.gethostname(), "pid": pid, "began": _read_begin(pid)}


def is_alive(row: Mapping[str, Any]) -> bool:
    """Return whether the process of a row may still run; on another host nobody can tell."""
    if row.get("host") != socket.gethostname():
        return True
    pid = row.get("pid")
    if not isinstance(pid, int):
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return row.get("began") == _read_begin(pid)


def _read_begin(pid: int) -> str | None:
    """Return the tick at which a process began; None if it has ended, or nobody can say."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in _ENDED else fields[_BEGIN]
