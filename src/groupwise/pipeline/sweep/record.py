"""What a sweep writes down: cells in ``sweep.json``, each change of one in ``states.jsonl``.

A folder belongs to one grid. It may grow by values; with other axes or other settings its cells
would differ in more than their coordinates. The cells' folders are the truth about finished work; a
row that is lost or damaged costs nothing but a look into the folder.
"""

import json
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from groupwise.core import (
    ConfigError,
    DataError,
    RunError,
    append_jsonl,
    digest_json,
    read_json,
    take_lock,
)
from groupwise.pipeline.run import compare_settings
from groupwise.pipeline.step_files import describe_now
from groupwise.pipeline.sweep.grid import Axis

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


RECORD = "sweep.json"
CELLS = "cells"
_FORMAT = 1
_MAX_SHOWN = 5


@dataclass(frozen=True, slots=True)
class SweepCell:
    """One run of a sweep.

    Attributes:
        name: of its folder.
        coordinates: the text of its value on each axis.
        folder: its run folder, which may not exist yet.
        state: ``waiting`` if it was never run, or was interrupted.
        error: how it failed, else empty.
    """

    name: str
    coordinates: Mapping[str, str]
    folder: Path
    state: CellState
    error: str = ""


@dataclass(frozen=True, slots=True)
class Sweep:
    """A grid of runs, as far as it is.

    Attributes:
        axes: what varies, in the order it was given.
        cells: all of them, those not run, too; the last axis varies fastest.
        recipe: what every cell runs.
        num_damaged: lines of ``states.jsonl`` that could not be read.
    """

    axes: tuple[Axis, ...]
    cells: tuple[SweepCell, ...]
    recipe: str
    num_damaged: int = 0


def read_sweep(folder: Path) -> Sweep:
    """Return the sweep in a folder, as its files say it; nothing is digested.

    A cell is done if its last row says so and its folder holds a run of its config. One whose
    process is gone is waiting.

    Raises:
        RunError: if there is no sweep, or ``sweep.json`` is damaged.
    """
    record = read_record(folder)
    states, num_damaged = read_states(folder)
    return Sweep(
        axes=tuple(Axis(axis["key"], tuple(axis["values"])) for axis in record["axes"]),
        cells=tuple(_read_cell(folder, cell, states.get(cell["name"])) for cell in record["cells"]),
        recipe=record["recipe"],
        num_damaged=num_damaged,
    )


def read_record(folder: Path) -> dict[str, Any]:
    """Return the values of ``sweep.json``.

    Raises:
        RunError: if there is none, or it has another format.
        DataError: if it is damaged.
    """
    path = folder / RECORD
    if not path.exists():
        raise RunError(f"{folder} holds no sweep", fix="check the folder, or give --grid")
    record = read_json(path, dict)
    if record.get("format") != _FORMAT:
        raise RunError(f"{path} is not of format {_FORMAT}", fix="use another --out")
    return record


def make_record(recipe: str, axes: Sequence[Axis], cells: Mapping[str, Any]) -> dict[str, Any]:
    """Return what ``sweep.json`` says.

    Args:
        recipe: name of the recipe.
        axes: in their order.
        cells: ``coordinates`` and resolved ``config`` by name.
    """
    return {
        "format": _FORMAT,
        "recipe": recipe,
        "axes": [{"key": axis.key, "values": list(axis.values)} for axis in axes],
        "cells": [
            {
                "name": name,
                "folder": f"{CELLS}/{name}",
                "config_digest": digest_json(values["config"]),
                **values,
            }
            for name, values in cells.items()
        ],
    }


def check_folder(folder: Path, record: Mapping[str, Any]) -> None:
    """Refuse a folder that holds something else than this sweep, or a part of it.

    Raises:
        ConfigError: naming what differs.
    """
    if (folder / RECORD).is_file():
        conflicts = list_conflicts(read_record(folder), record)
        if conflicts:
            lines = "".join(f"\n  {line}" for line in conflicts)
            raise ConfigError(
                f"{folder} holds another sweep:{lines}\n"
                "use another --out, or what it was started with (an axis may get more values)"
            )
    elif folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder", fix="use another --out")
    elif folder.is_dir() and any(not path.name.startswith(".") for path in folder.iterdir()):
        raise ConfigError(f"{folder} has files but holds no sweep", fix="use another --out")


def list_conflicts(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return what keeps a folder with the record ``before`` from going on with ``after``."""
    if before["recipe"] != after["recipe"]:
        return [f"its recipe is {before['recipe']}, not {after['recipe']}"]
    old, new = ({axis["key"]: axis["values"] for axis in r["axes"]} for r in (before, after))
    if list(old) != list(new):
        return [f"its axes are {', '.join(old)}, not {', '.join(new)}"]
    problems = [
        f"it has {key}={value}, which is missing now"
        for key, values in old.items()
        for value in values
        if value not in new[key]
    ]
    configs = {cell["name"]: cell["config"] for cell in after["cells"]}
    changed: dict[str, str] = {}
    for cell in before["cells"]:
        if cell["name"] in configs:
            changed |= compare_settings(cell["config"], configs[cell["name"]])
    lines = [f"{key} was {values}" for key, values in changed.items()]
    more = [f"and {len(lines) - _MAX_SHOWN} more settings"] if len(lines) > _MAX_SHOWN else []
    return problems + lines[:_MAX_SHOWN] + more


def _read_cell(folder: Path, cell: Mapping[str, Any], row: Mapping[str, Any] | None) -> SweepCell:
    path = folder / cell["folder"]
    state: CellState = row["state"] if row else "waiting"
    error = str(row.get("error", "")) if row else ""
    if state == "running" and row is not None and not is_alive(row):
        state, error = "waiting", ""
    if state == "done" and not _holds_config(path, cell["config_digest"]):
        state, error = "waiting", "its folder no longer holds the run that was done"
    return SweepCell(cell["name"], cell["coordinates"], path, state, error)


def _holds_config(run: Path, digest: str) -> bool:
    try:
        return read_json(run / "manifest.json", dict).get("config_digest") == digest
    except DataError:
        return False
