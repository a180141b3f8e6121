"""The state of a run as it can be told from outside: its steps, and where its training stands.

A run holds its folder with a lock; each step's folder has ``started.json`` while it works and
``step.json`` when it is done. Nothing here writes into the folder.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from groupwise.core import STEP_DONE, RunError, check_records, check_sealed, is_locked
from groupwise.evaluation.monitor.alarms import Alarm, find_alarms
from groupwise.evaluation.monitor.history import History
from groupwise.evaluation.monitor.memory import ProcessMemory, read_processes

RunPhase = Literal["waiting", "running", "stopped", "finished"]
StepPhase = Literal["done", "reused", "running", "stopped", "left"]
_MAX_CELLS = 8
_Stamp = tuple[int, int, int]
_Record = Mapping[str, Any]
_Markers = Mapping[str, tuple[_Record | None, _Record | None]]
"""Of each step what ``started.json`` and ``step.json`` say, None where there is no such file."""


@dataclass(frozen=True, slots=True)
class StepState:
    """One step of a run.

    Attributes:
        name: the step.
        phase: ``reused``: done by an earlier start of the run; ``stopped``: begun, but the
            process is gone.
        duration_s: what its work took, or has taken so far; None if it has not begun.
    """

    name: str
    phase: StepPhase
    duration_s: float | None = None


@dataclass(frozen=True, slots=True)
class TrainingState:
    """One training step and what it has logged.

    Attributes:
        step: name of the run's step.
        phase: of that step.
        history: its rows.
        alarms: errors first.
        num_steps: training steps in all, None where it is not known.
        left_s: seconds until its last step, estimated from its last row; None where not known.
        row_age_s: seconds since its last row was written; None without rows.
        num_damaged: lines of its log that could not be read.
        memory: what each of its processes took when its last row was written.
    """

    step: str
    phase: StepPhase
    history: History
    alarms: tuple[Alarm, ...] = ()
    num_steps: int | None = None
    left_s: float | None = None
    row_age_s: float | None = None
    num_damaged: int = 0
    memory: tuple[ProcessMemory, ...] = ()


@dataclass(frozen=True, slots=True)
class RunState:
    """A run at one moment.

    Attributes:
        folder: its folder.
        recipe: its name; "" while there is no manifest.
        phase: ``waiting``: nothing has begun; ``stopped``: killed, or ended by an error.
        steps: in the order of the plan where it is known, else as they were begun.
        trainings: the steps that log rows, in the same order.
        elapsed_s: since its last start until now, or until its last step was done.
        is_plan_known: whether ``steps`` has those that have not begun, too.
    """

    folder: Path
    recipe: str
    phase: RunPhase
    steps: tuple[StepState, ...] = ()
    trainings: tuple[TrainingState, ...] = ()
    elapsed_s: float | None = None
    is_plan_known: bool = False

    @property
    def current(self) -> TrainingState | None:
        """The training that runs or was stopped, else the last one with a reward, else the last."""
        begun = [training for training in self.trainings if training.phase != "left"]
        active = [training for training in begun if training.phase in ("running", "stopped")]
        rewarded = [training for training in begun if training.history.read("reward")]
        return next(reversed(active or rewarded or begun), None)

    @property
    def resume_command(self) -> tuple[str, ...]:
        """What continues it."""
        return "groupwise", "run", self.recipe, "--out", str(self.folder), "--resume"


class RunReader:
    """Follows one run; a log is read again only when it has changed.

    Args:
        folder: the run folder; it need not exist yet.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._logs: dict[Path, tuple[_Stamp, History, int]] = {}
        self._checked: dict[str, _Stamp] = {}

    def read(self) -> RunState:
        """Return the state at this moment.

        Raises:
            RunError: if the folder is a file, a sweep, or holds something else than a run; or the
                manifest or a finished step is not what the run wrote.
        """
        manifest = _read_object(self.folder / "manifest.json")
        if manifest is None:
            _check_folder(self.folder)
            return RunState(self.folder, "", "waiting")
        check_sealed(manifest, self.folder / "manifest.json")
        self._check_finished()
        is_held, now = is_locked(self.folder / ".lock"), datetime.now(UTC)
        began, planned = _moment(manifest), tuple(manifest.get("plan", ()))
        markers = self._read_markers(planned)
        steps = _drop_unplanned(tuple(_list_steps(markers, began, now if is_held else None)))
        ends = [_moment(done) for step in steps if (done := markers[step.name][1])]
        end = now if is_held else max(ends, default=None)
        return RunState(
            folder=self.folder,
            recipe=str(manifest["recipe"]),
            phase=_judge_phase(steps, is_held=is_held),
            steps=steps,
            trainings=tuple(self._list_trainings(steps, now)),
            elapsed_s=None if end is None else max(0.0, (end - began).total_seconds()),
            is_plan_known=bool(planned),
        )

    def _check_finished(self) -> None:
        """Hold the records of each finished step against its marker, once for each marker."""
        for marker in sorted(self.folder.glob(f"[!.]*/{STEP_DONE}")):
            step = marker.parent.name
            try:
                stamp = _read_stamp(marker)
            except OSError:  # the step is being done again
                continue
            if self._checked.get(step) != stamp:
                check_records(self.folder, step)
                self._checked[step] = stamp

    def _read_markers(self, planned: Sequence[str]) -> _Markers:
        """Return the markers of the planned steps, or else of those begun, in their order."""
        paths = [*self.folder.glob("*/started.json"), *self.folder.glob("*/step.json")]
        names = planned or sorted({path.parent.name for path in paths})
        found = {
            name: (
                _read_object(self.folder / name / "started.json"),
                _read_object(self.folder / name / "step.json"),
            )
            for name in names
        }
        if planned:
            return found
        begun = {name: both for name, both in found.items() if any(both)}
        return dict(sorted(begun.items(), key=lambda item: _rank_begun(item[1])))

    def _list_trainings(self, steps: Sequence[StepState], now: datetime) -> Iterator[TrainingState]:
        for step in steps:
            folder = self.folder / step.name
            progress = _read_object(folder / "progress.json")
            row_time, history, num_damaged = self._read_log(folder / "metrics.jsonl")
            if history.is_empty and progress is None:
                continue
            left_s = None
            if step.phase == "running" and progress is not None and row_time is not None:
                left_s = estimate_left(progress, history.last_step, row_time=row_time, now=now)
            num_steps = None if progress is None else progress["num_steps"]
            judge = _read_object(folder / "judge.json")
            yield TrainingState(
                step=step.name,
                phase=step.phase,
                history=history,
                alarms=find_alarms(history, judge=judge, num_steps=num_steps),
                num_steps=num_steps,
                left_s=left_s,
                row_age_s=None if row_time is None else (now - row_time).total_seconds(),
                num_damaged=num_damaged,
                memory=read_processes(_read_object(folder / "memory.json")),
            )

    def _read_log(self, path: Path) -> tuple[datetime | None, History, int]:
        """Return when a log was last written, its rows, and how many lines are damaged."""
        try:
            stamp = _read_stamp(path)
            if path not in self._logs or self._logs[path][0] != stamp:
                self._logs[path] = stamp, *read_log(path)
        except OSError:
            return None, History(), 0
        return datetime.fromtimestamp(stamp[1] / 1e9, UTC), *self._logs[path][1:]


def _read_stamp(path: Path) -> _Stamp:
    found = path.stat()
    return found.st_ino, found.st_mtime_ns, found.st_size


def read_log(path: Path) -> tuple[History, int]:
    """Return a log that another process may be writing, and how many of its lines are damaged.

    A last line that is not finished yet is left out.

    Raises:
        OSError: if it cannot be read.
    """
    lines = [line for line in path.read_bytes().split(b"\n")[:-1] if line.strip()]
    rows = [row for line in lines if (row := _parse_object(line)) is not None]
    return History(rows), len(lines) - len(rows)


def _read_object(path: Path) -> _Record | None:
    """Return the object in a file, None if it is not there or cannot be read."""
    try:
        return _parse_object(path.read_bytes())
    except OSError:
        return None


def _parse_object(text: bytes) -> _Record | None:
    try:
        value: Any = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None  # pyright: ignore[reportUnknownVariableType]


def _moment(record: _Record) -> datetime:
    return datetime.fromisoformat(record.get("finished_at") or record["started_at"])


def _rank_begun(markers: tuple[_Record | None, _Record | None]) -> tuple[bool, datetime]:
    started, done = markers
    return started is not None, _moment(started or done or {})


def _list_steps(markers: _Markers, began: datetime, now: datetime | None) -> Iterator[StepState]:
    """Yield the state of each step; ``now`` is None where no process works in the run."""
    is_past = False  # behind the running step, results are those of an earlier start
    for name, (started, done) in markers.items():
        if started is not None:
            is_past = True
            passed_s = None if now is None else (now - _moment(started)).total_seconds()
            yield StepState(name, "stopped" if now is None else "running", passed_s)
        elif done is None or is_past:
            yield StepState(name, "left")
        else:
            yield StepState(name, "reused" if _moment(done) < began else "done", done["duration_s"])


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


def _check_folder(folder: Path) -> None:
    """Refuse a path without a manifest at which no run can appear."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise RunError(f"{folder} is not a folder", fix="give the folder of a run")
    if (folder / "sweep.json").is_file():
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


def estimate_left(
    progress: Mapping[str, Any], last_step: int, *, row_time: datetime, now: datetime
) -> float | None:
    """Return the seconds until the last training step, None where nothing can be said.

    Args:
        progress: ``num_steps`` in all, ``first_step`` and ``started_at`` of this attempt.
        last_step: step of the last row.
        row_time: when that row was written.
        now: the present.
    """
    num_done = last_step - progress["first_step"]
    passed_s = (row_time - _moment(progress)).total_seconds()
    if num_done <= 0 or passed_s <= 0:
        return None
    all_s = passed_s / num_done * (progress["num_steps"] - last_step)
    return max(0.0, all_s - max(0.0, (now - row_time).total_seconds()))
