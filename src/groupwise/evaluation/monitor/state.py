"""The state of a run as it can be told from outside: its steps, and where its training stands.

A run holds its folder with a lock; each step's folder has ``started.json`` while it works and
``step.json`` when it is done. Nothing here writes into the folder.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from groupwise.evaluation.monitor.alarms import Alarm
from groupwise.evaluation.monitor.history import History

RunPhase = Literal["waiting", "running", "stopped", "finished"]
StepPhase = Literal["done", "reused", "running", "stopped", "left"]


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
    """

    step: str
    phase: StepPhase
    history: History
    alarms: tuple[Alarm, ...] = ()
    num_steps: int | None = None
    left_s: float | None = None
    row_age_s: float | None = None
    num_damaged: int = 0


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
    passed_s = (row_time - datetime.fromisoformat(progress["started_at"])).total_seconds()
    if num_done <= 0 or passed_s <= 0:
        return None
    all_s = passed_s / num_done * (progress["num_steps"] - last_step)
    return max(0.0, all_s - max(0.0, (now - row_time).total_seconds()))
