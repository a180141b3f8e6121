"""Running the cells of a plan: several at once, each until it is done or has failed.

Finished cells are found by their folders and never run again; what failed or was interrupted is.
"""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from groupwise.core import RunError, RunFolder, write_json
from groupwise.pipeline.sweep.children import RunningCell, SweepClock, start_cell
from groupwise.pipeline.sweep.places import CellEnd, LocalPlaces, Places
from groupwise.pipeline.sweep.planning import PlannedCell, SweepPlan
from groupwise.pipeline.sweep.record import (
    RECORD,
    Sweep,
    append_state,
    check_folder,
    describe_process,
    read_record,
    read_states,
    read_sweep,
)

CellEvent = Literal["kept", "damaged", "busy", "started", "lost", "done", "failed"]

_POLL_S = 0.05
_BUSY_POLL_S = 1.0
_RECORD_PATIENCE_S = 10.0
_MAX_LOSSES = 3


@dataclass(frozen=True, slots=True)
class SweepProgress:
    """What just happened to a cell, and how far the sweep is.

    Attributes:
        cell: its name.
        event: ``kept`` (done before), ``damaged`` (was done, its files changed: it is run again),
            ``busy`` (another process works on it: later), ``started``, ``lost`` (with the worker
            of a cluster: it is run again), ``done`` or ``failed``.
        num_cells, num_done, num_failed, num_running: counts; the others wait.
        left_s: about how long all will still take; None if nobody can tell yet.
        duration_s: of the cell's process when it has ended.
        error: how it failed.
    """

    cell: str
    event: CellEvent
    num_cells: int
    num_done: int
    num_failed: int
    num_running: int
    left_s: float | None = None
    duration_s: float | None = None
    error: str = ""

    @property
    def num_left(self) -> int:
        """Cells that are neither done nor failed nor running."""
        return self.num_cells - self.num_done - self.num_failed - self.num_running


Report = Callable[[SweepProgress], None]


def run_sweep(
    plan: SweepPlan, *, places: Places | None = None, report_progress: Report = lambda _: None
) -> Sweep:
    """Run all cells that are not done yet; one that fails is recorded and the others go on.

    Args:
        plan: what to run.
        places: where cells run; None: on this machine, one after the other.
        report_progress: called whenever something happens to a cell.

    Returns:
        The sweep as it is afterwards.

    Raises:
        RunError: if another process runs this sweep.
        ConfigError: if the folder holds another sweep.
    """
    with RunFolder(plan.folder).lock():
        _write_record(plan)
        _Runner(plan, list(plan.cells), places or LocalPlaces(), report_progress).run()
    return read_sweep(plan.folder)


def run_cell(
    plan: SweepPlan,
    name: str,
    *,
    places: Places | None = None,
    report_progress: Report = lambda _: None,
) -> Sweep:
    """Run one cell; the others may be run elsewhere at the same time.

    Args:
        plan: that the cell belongs to.
        name: its name, or its coordinates as they may be typed.
        places: where it runs; None: on this machine.
        report_progress: called whenever something happens to it.

    Raises:
        ConfigError: if there is no such cell.
        RunError: if another process works on it.
    """
    cell = plan.find_cell(name)
    _ensure_record(plan)
    with RunFolder(cell.folder).lock():
        pass
    _Runner(plan, [cell], places or LocalPlaces(), report_progress).run()
    return read_sweep(plan.folder)


def _write_record(plan: SweepPlan) -> None:
    check_folder(plan.folder, plan.record)
    write_json(plan.folder / RECORD, plan.record)


def _ensure_record(plan: SweepPlan) -> None:
    """Write ``sweep.json`` unless it is there; another process may be just about to."""
    deadline_s = time.monotonic() + _RECORD_PATIENCE_S
    while not (plan.folder / RECORD).is_file() or read_record(plan.folder) != plan.record:
        try:
            with RunFolder(plan.folder).lock():
                _write_record(plan)
        except RunError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(_POLL_S)


class _Runner:
    """The cells that are left and those that are running; one thread, which polls."""

    def __init__(self, plan: SweepPlan, cells: list[PlannedCell], places: Places, report: Report):
        self._plan = plan
        self._num_cells = len(cells)
        self._places = places
        self._report = report
        self._waiting = cells
        self._busy: dict[str, float] = {}
        self._running: list[RunningCell] = []
        self._num_losses: Counter[str] = Counter()
        self._clock = SweepClock()
        self._num_done = 0
        self._num_failed = 0

    def run(self) -> None:
        try:
            self._keep_finished()
            while self._waiting or self._running:
                while self._has_place() and (cell := self._choose()) is not None:
                    self._start(cell)
                time.sleep(_POLL_S)
                for one in list(self._running):
                    end = one.process.look()
                    if end is not None:
                        self._end(one, end)
        finally:
            self._stop()

    def _has_place(self) -> bool:
        return len(self._running) < self._places.num_places

    def _keep_finished(self) -> None:
        """Leave out what is done; what was started before comes first: it can be continued."""
        states, _ = read_states(self._plan.folder)
        for cell in list(self._waiting):
            state = states.get(cell.name, {}).get("state")
            if cell.is_done(self._plan.recipe):
                self._keep(cell, is_noted=state == "done")
            elif state == "done":
                append_state(self._plan.folder, cell.name, "waiting")
                self._tell(cell, "damaged")
        self._waiting.sort(key=lambda cell: not cell.folder.is_dir())

    def _keep(self, cell: PlannedCell, *, is_noted: bool) -> None:
        if not is_noted:
            append_state(self._plan.folder, cell.name, "done")
        self._waiting.remove(cell)
        self._num_done += 1
        self._clock.add(cell)
        self._tell(cell, "kept")

    def _choose(self) -> PlannedCell | None:
        """Return the next cell, one that shares no work with the running ones if there is any."""
        now = time.monotonic()
        free = [cell for cell in self._waiting if self._busy.get(cell.name, 0.0) <= now]
        running = [one.cell for one in self._running]
        return min(free, key=lambda c: self._clock.count_open(c, running), default=None)

    def _start(self, cell: PlannedCell) -> None:
        """Start a cell, unless another process works on it or has just done it."""
        try:
            with RunFolder(cell.folder).lock():
                pass
        except RunError:
            if cell.name not in self._busy:
                self._tell(cell, "busy")
            self._busy[cell.name] = time.monotonic() + _BUSY_POLL_S
            return
        if cell.is_done(self._plan.recipe):
            self._keep(cell, is_noted=False)
            return
        self._waiting.remove(cell)
        started = start_cell(self._plan, cell, self._places)
        self._running.append(started)
        process = describe_process(started.process.pid)
        append_state(self._plan.folder, cell.name, "running", **process)
        self._tell(cell, "started")

    def _end(self, ended: RunningCell, end: CellEnd) -> None:
        self._running.remove(ended)
        cell, duration_s = ended.cell, round(ended.process.duration_s, 3)
        if end.code is None and self._num_losses[cell.name] < _MAX_LOSSES:
            self._num_losses[cell.name] += 1
            append_state(self._plan.folder, cell.name, "waiting", error=end.error)
            self._waiting.insert(0, cell)
            self._tell(cell, "lost", duration_s, end.error)
            return
        if end.code == 0:
            self._num_done += 1
            self._clock.add(cell, duration_s)
            append_state(self._plan.folder, cell.name, "done", duration_s=duration_s)
            self._tell(cell, "done", duration_s)
            return
        self._num_failed += 1
        more = {"exit_code": end.code, "error": end.error, "log": str(ended.log)}
        append_state(self._plan.folder, cell.name, "failed", duration_s=duration_s, **more)
        self._tell(cell, "failed", duration_s, end.error)

    def _stop(self) -> None:
        self._places.stop([one.process for one in self._running])
        for one in self._running:
            append_state(self._plan.folder, one.cell.name, "waiting")

    def _tell(
        self, cell: PlannedCell, event: CellEvent, duration_s: float | None = None, error: str = ""
    ) -> None:
        left = [*self._waiting, *(one.cell for one in self._running)]
        self._report(
            SweepProgress(
                cell=cell.name,
                event=event,
                num_cells=self._num_cells,
                num_done=self._num_done,
                num_failed=self._num_failed,
                num_running=len(self._running),
                left_s=self._clock.estimate_s(left, self._places.num_places),
                duration_s=duration_s,
                error=error,
            )
        )
