"""Reading a run's state again and again, while another process works in its folder."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from groupwise.core import RunError, is_locked
from groupwise.evaluation.monitor.alarms import find_alarms
from groupwise.evaluation.monitor.history import History
from groupwise.evaluation.monitor.settings import AlarmSettings
from groupwise.evaluation.monitor.state import (
    RunPhase,
    RunState,
    StepState,
    TrainingState,
    estimate_left,
)
from groupwise.evaluation.monitor.tail import JsonFile, RowTail

_DONE, _STARTED = "step.json", "started.json"
_SWEEP = "sweep.json"
_MAX_CELLS = 8


class RunReader:
    """Follows one run; each reading looks only at what is new.

    Args:
        folder: the run folder; it need not exist yet.
        planned: names of all steps in their order; empty where they are not known.
        settings: thresholds of the alarms.
    """

    def __init__(
        self, folder: Path, *, planned: Sequence[str] = (), settings: AlarmSettings | None = None
    ) -> None:
        self.folder = folder
        self.planned = tuple(planned)
        self.settings = settings
        self._files: dict[Path, JsonFile] = {}
        self._trainings: dict[str, _Training] = {}

    def read_manifest(self) -> Mapping[str, Any] | None:
        """Return the manifest, None while there is none.

        Raises:
            RunError: if the folder is a file, a sweep, or holds something else than a run.
        """
        manifest = self._read(self.folder / "manifest.json")
        if manifest is None:
            check_folder(self.folder)
        return manifest

    def read(self) -> RunState:
        """Return the state at this moment.

        Raises:
            RunError: if the folder is a file, a sweep, or holds something else than a run.
        """
        manifest = self.read_manifest()
        is_held = is_folder_held(self.folder)
        if manifest is None:
            return RunState(self.folder, "", "waiting")
        now = datetime.now(UTC)
        began = datetime.fromisoformat(manifest["started_at"])
        steps = _drop_unplanned(tuple(self._list_steps(is_held=is_held, began=began, now=now)))
        phase = _judge_phase(steps, is_held=is_held)
        return RunState(
            folder=self.folder,
            recipe=str(manifest["recipe"]),
            phase=phase,
            steps=steps,
            trainings=tuple(self._list_trainings(steps, now)),
            elapsed_s=self._measure_elapsed(phase, steps, began=began, now=now),
            is_plan_known=bool(self.planned),
        )

    def _list_steps(self, *, is_held: bool, began: datetime, now: datetime) -> Iterator[StepState]:
        is_past = False  # behind the running step, results are those of an earlier start
        for name in self.planned or self._list_begun():
            started = self._read(self.folder / name / _STARTED)
            done = self._read(self.folder / name / _DONE)
            if started is not None:
                is_past = True
                since = datetime.fromisoformat(started["started_at"])
                passed_s = (now - since).total_seconds() if is_held else None
                yield StepState(name, "running" if is_held else "stopped", passed_s)
            elif done is None or is_past:
                yield StepState(name, "left")
            else:
                is_old = datetime.fromisoformat(done["finished_at"]) < began
                yield StepState(name, "reused" if is_old else "done", done["duration_s"])

    def _list_begun(self) -> list[str]:
        """Return the steps that have a marker, in the order in which they were done."""
        times: dict[str, tuple[bool, str]] = {}
        for marker, key in ((_DONE, "finished_at"), (_STARTED, "started_at")):
            for path in self.folder.glob(f"*/{marker}"):
                found = self._read(path)
                if found is not None:
                    times[path.parent.name] = marker == _STARTED, str(found[key])
        return sorted(times, key=lambda name: times[name])

    def _list_trainings(self, steps: Sequence[StepState], now: datetime) -> Iterator[TrainingState]:
        for step in steps:
            training = self._trainings.setdefault(step.name, _Training(self.folder / step.name))
            training.update()
            if not training.history.is_empty or training.progress.read() is not None:
                yield training.describe(step, now, self.settings)

    def _measure_elapsed(
        self, phase: RunPhase, steps: Sequence[StepState], *, began: datetime, now: datetime
    ) -> float | None:
        if phase == "running":
            return (now - began).total_seconds()
        markers = [self._read(self.folder / step.name / _DONE) for step in steps]
        ends = [datetime.fromisoformat(found["finished_at"]) for found in markers if found]
        return max(0.0, (max(ends) - began).total_seconds()) if ends else None

    def _read(self, path: Path) -> Mapping[str, Any] | None:
        return self._files.setdefault(path, JsonFile(path)).read()


class _Training:
    """What one training step has written so far."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows = RowTail(folder / "metrics.jsonl")
        self.progress = JsonFile(folder / "progress.json")
        self.judge = JsonFile(folder / "judge.json")
        self.history = History()

    def update(self) -> None:
        rows, is_replaced = self.rows.read_new()
        if is_replaced:
            self.history = History()
        self.history.add(rows)

    def describe(
        self, step: StepState, now: datetime, settings: AlarmSettings | None
    ) -> TrainingState:
        progress = self.progress.read()
        row_time = self._find_row_time()
        left_s = None
        if step.phase == "running" and progress is not None and row_time is not None:
            left_s = estimate_left(progress, self.history.last_step, row_time=row_time, now=now)
        return TrainingState(
            step=step.name,
            phase=step.phase,
            history=self.history,
            alarms=find_alarms(self.history, settings, judge=self.judge.read()),
            num_steps=progress["num_steps"] if progress is not None else None,
            left_s=left_s,
            row_age_s=(now - row_time).total_seconds() if row_time is not None else None,
            num_damaged=self.rows.num_damaged,
        )

    def _find_row_time(self) -> datetime | None:
        try:
            return datetime.fromtimestamp(self.rows.path.stat().st_mtime, UTC)
        except OSError:
            return None


def _drop_unplanned(steps: Sequence[StepState]) -> tuple[StepState, ...]:
    """Leave out steps that have not begun although a later one has.

    Steps are done in order, so this run's plan did not have them: the recipe got them afterwards.
    """
    begun = [place for place, step in enumerate(steps) if step.phase != "left"]
    last = begun[-1] if begun else -1
    return tuple(s for place, s in enumerate(steps) if s.phase != "left" or place > last)


def _judge_phase(steps: Sequence[StepState], *, is_held: bool) -> RunPhase:
    if is_held:
        return "running"
    is_whole = bool(steps) and all(step.phase in ("done", "reused") for step in steps)
    return "finished" if is_whole else "stopped"


def is_folder_held(folder: Path) -> bool:
    """Whether a process works in a run folder: whether it holds the folder's lock."""
    return is_locked(folder / ".lock")


def check_folder(folder: Path) -> None:
    """Refuse a path without a manifest at which no run can appear.

    Raises:
        RunError: if it is a file, a sweep, or a folder of something else.
    """
    if not folder.exists():
        return
    if not folder.is_dir():
        raise RunError(f"{folder} is not a folder", fix="give the folder of a run")
    if (folder / _SWEEP).is_file():
        raise RunError(_describe_sweep(folder))
    if any(not path.name.startswith(".") for path in folder.iterdir()):
        raise RunError(f"{folder} has files but holds no run", fix="give the folder of a run")


def _describe_sweep(folder: Path) -> str:
    cells = sorted(path.parent for path in folder.glob("cells/*/manifest.json"))
    if not cells:
        return f"{folder} is a sweep, not a run, and none of its cells has begun"
    shown = "".join(f"\n  {cell}" for cell in cells[:_MAX_CELLS])
    more = f"\n  and {len(cells) - _MAX_CELLS} more" if len(cells) > _MAX_CELLS else ""
    return f"{folder} is a sweep, not a run; give one of its {len(cells)} cells:{shown}{more}"
