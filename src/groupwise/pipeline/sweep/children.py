"""One cell as a process of its own: the real ``groupwise run``, its log, its end and its time.

A child is in its own process group and dies with the sweep, however that ends.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from groupwise.core import write_json
from groupwise.pipeline.step_files import DONE, describe_now, read_marker
from groupwise.pipeline.sweep.planning import PlannedCell, SweepPlan
from groupwise.pipeline.sweep.record import CELLS

LOGS = "logs"
CONFIGS = "configs"
_NUM_LAST_LINES = 8
_MAX_LINE = 500
_PR_SET_PDEATHSIG = 1


@dataclass(slots=True)
class Child:
    """A cell that is running.

    Attributes:
        cell: what it runs.
        process: the run itself.
        log: what it says, appended to what earlier attempts said.
        log_start: where this attempt begins in the log, bytes.
        started_s: by the monotonic clock.
    """

    cell: PlannedCell
    process: subprocess.Popen[bytes]
    log: Path
    log_start: int
    started_s: float

    @property
    def duration_s(self) -> float:
        """Seconds since it was started."""
        return time.monotonic() - self.started_s

    def describe_failure(self) -> str:
        """Return how it ended and the last lines that it said."""
        code = self.process.returncode
        end = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        with self.log.open("rb") as stream:
            stream.seek(self.log_start)
            lines = stream.read().decode(errors="replace").splitlines()
        last = [line[:_MAX_LINE] for line in lines if line.strip()][-_NUM_LAST_LINES:]
        return "\n".join([end, *last])


def start_child(plan: SweepPlan, cell: PlannedCell) -> Child:
    """Start ``groupwise run`` for a cell; its config is written beside the cells first."""
    config = plan.folder / CONFIGS / f"{cell.name}.json"
    write_json(config, cell.config.model_dump(mode="json"))
    log = plan.folder / LOGS / f"{cell.name}.log"
    log.parent.mkdir(exist_ok=True)
    command = _write_command(plan, cell, config)
    with log.open("ab") as stream:
        start = stream.tell()
        stream.write(f"{describe_now()} {' '.join(command)}\n".encode())
        stream.flush()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            process_group=0,
            preexec_fn=_make_dependent(os.getpid()),
        )
    return Child(cell, process, log, start, time.monotonic())


def stop_children(children: Sequence[Child], *, patience_s: float = 60.0) -> None:
    """Ask all to stop and wait for them; those that do not, or a second Ctrl-C, are killed."""
    deadline_s = time.monotonic() + patience_s
    try:
        for child in children:
            _signal_group(child, signal.SIGTERM)
        for child in children:
            child.process.wait(max(0.0, deadline_s - time.monotonic()))
    except (KeyboardInterrupt, subprocess.TimeoutExpired):
        for child in children:
            _signal_group(child, signal.SIGKILL)
        for child in children:
            child.process.wait()


def _write_command(plan: SweepPlan, cell: PlannedCell, config: Path) -> list[str]:
    accepted = [part for finding in plan.accepted for part in ("--accept", finding)]
    # -P: the working folder is no place to import from, as with the installed command.
    program = [sys.executable, "-P", "-m", "groupwise.cli", "run", plan.recipe.name]
    shared = str(plan.folder / CELLS)
    places = ["--config", str(config), "--out", str(cell.folder), "--share-with", shared]
    return [*program, *places, *accepted]


def _signal_group(child: Child, number: signal.Signals) -> None:
    if child.process.poll() is None:
        os.killpg(child.process.pid, number)


def _make_dependent(parent: int):
    """Return what a new process does first: on Linux, ask to be killed when its parent dies."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)

    def depend() -> None:
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os.kill(os.getpid(), signal.SIGKILL)

    return depend


class SweepClock:
    """Learns what each step takes and what a cell takes besides.

    Work that several cells share counts once: the first of them does it.
    """

    def __init__(self) -> None:
        self._steps_s: dict[str, list[float]] = {}
        self._besides_s: list[float] = []
        self._done: set[str] = set()

    def add(self, cell: PlannedCell, duration_s: float | None = None) -> None:
        """Learn from a finished cell.

        Args:
            cell: whose markers are read.
            duration_s: of its process; None if it was not run now.
        """
        self._done |= set(cell.work.values())
        own_s = 0.0
        for step in cell.steps:
            marker = read_marker(cell.folder / step.name / DONE) or {}
            if "duration_s" in marker and "taken_from" not in marker:
                self._steps_s.setdefault(step.name, []).append(marker["duration_s"])
                own_s += marker["duration_s"]
        if duration_s is not None:
            self._besides_s.append(max(0.0, duration_s - own_s))

    def count_open(self, cell: PlannedCell, running: Sequence[PlannedCell]) -> int:
        """Return how many pieces of work of a cell the running ones are about to do."""
        busy = {key for other in running for key in other.work.values()}
        return len((set(cell.work.values()) & busy) - self._done)

    def estimate_s(self, left: Sequence[PlannedCell], jobs: int) -> float | None:
        """Return the seconds until all of ``left`` are done, None while nothing is known."""
        if not left or not self._besides_s:
            return None
        open_work = {
            (name, key) for cell in left for name, key in cell.work.items() if key not in self._done
        }
        known = [mean(self._steps_s[name]) for name, _ in open_work if name in self._steps_s]
        return (sum(known) + len(left) * mean(self._besides_s)) / min(jobs, len(left))
