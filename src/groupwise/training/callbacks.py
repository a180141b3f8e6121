"""Around training steps: what trains, metric rows, progress, checkpoints, held-out checks."""

import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any, Self

from accelerate import PartialState
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from transformers import TrainerCallback

from groupwise.core import ProgressLine, TrainingError, append_jsonl, hush, read_jsonl
from groupwise.models import format_trainable, note_quantization, tabulate_trainable
from groupwise.training.log import TrainingLog, begin_progress, end_progress
from groupwise.training.processes import ask_first, is_first_process
from groupwise.training.sharding import gather_weights
from groupwise.training.trackers import Trackers
from groupwise.training.workspace import mark_complete, remove_checkpoints

RenameMetrics = Callable[[Mapping[str, float]], dict[str, float]]
CheckHeldout = Callable[[], Mapping[str, float]]
FindStop = Callable[[Sequence[Mapping[str, Any]], int], tuple[str, str] | None]
"""Of rows and the number of all steps: what was seen and what to do, or None."""

_NUM_CHECKPOINTS = 2
_BARS, _MOST_BARS = "▁▂▃▄▅▆▇█", 24


class MetricRows(TrainerCallback):
    """Writes one row of ``metrics.jsonl`` for each logged step, and tells the trackers.

    A row also has what ``tell`` returns: further values, and under ``facts`` what they count,
    which trackers are not told.

    After a crash, rows beyond the checkpoint that training goes on from are dropped first,
    so that the file is that of an uninterrupted run.
    """

    def __init__(
        self,
        path: Path,
        *,
        rename: RenameMetrics,
        num_epochs: float,
        trackers: Trackers,
        tell: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        self.log = TrainingLog(path)
        self.tell = tell
        self.rename = rename
        self.num_epochs = num_epochs
        self.trackers = trackers

    def on_train_begin(self, args, state, control, **_: Any) -> None:
        """Drop rows of steps that will be done again."""
        if is_first_process():
            self.log.start(state.global_step)

    def on_log(self, args, state, control, logs=None, **_: Any) -> None:
        """Append the row of this step.

        Raises:
            TrainingError: if a value is not a number; a gradient norm that is none is left out.
        """
        if logs and "loss" in logs:
            epoch = self.num_epochs * state.global_step / max(state.max_steps, 1)
            told = self.tell()
            if not is_first_process():
                return
            facts = told.pop("facts", None)
            values = self.rename(logs) | told
            row = self.log.write(state.global_step, values, epoch=epoch, facts=facts)
            values = {name: value for name, value in row.items() if name not in ("step", "facts")}
            self.trackers.log(values, args, state, control)


class HeldoutRows(TrainerCallback):
    """Runs a held-out check every so many steps, writes its row and tells the trackers.

    Of several processes the first checks, and the others wait for what it finds.
    """

    def __init__(
        self, path: Path, *, check: CheckHeldout, every_steps: int, trackers: Trackers
    ) -> None:
        self.path = path
        self.check = check
        self.every_steps = every_steps
        self.trackers = trackers
        self.last_step = 0
        self.values: Mapping[str, float] = {}

    def on_step_end(self, args, state, control, model: Any = None, **_: Any) -> None:
        """Check after every ``every_steps`` steps and after the last one."""
        if state.global_step % self.every_steps and state.global_step != state.max_steps:
            return
        with gather_weights(model):
            values = ask_first(lambda: self._check(model))
        self.last_step, self.values = state.global_step, values
        named = {f"heldout/{name}": value for name, value in self.values.items()}
        if is_first_process():
            append_jsonl(self.path, {"step": state.global_step, **named})
        self.trackers.log(named, args, state, control)

    def finish(self, model: Any) -> Mapping[str, int]:
        """Return what the looks add to the budget: nothing, for nothing was chosen by them."""
        return {}

    def _check(self, model: Any) -> Mapping[str, float]:
        was_training = model.training
        model.eval()
        try:
            return self.check()
        finally:
            model.train(was_training)


def make_alarm_stop(
    path: Path, find_stop: FindStop | None, *, at_end: bool
) -> list[TrainerCallback]:
    """Return what ends a training at an alarm, if anything is to; see ``AlarmStop``."""
    return [] if find_stop is None else [AlarmStop(path, find_stop=find_stop, at_end=at_end)]


class AlarmStop(TrainerCallback):
    """Ends a training at an alarm, with a checkpoint that it can go on from.

    It looks at every row, and raises where ``progress.json`` still is, as where a training is
    killed. A training that goes on from there meets the same alarm before its first step.

    Args:
        path: of the rows.
        find_stop: says what is wrong with the rows so far and what to do, or None: go on.
        at_end: whether the last step may end in an alarm, too, as others build on what comes out.
    """

    def __init__(self, path: Path, *, find_stop: FindStop, at_end: bool) -> None:
        self.path = path
        self.find_stop = find_stop
        self.at_end = at_end
        self.alarm: tuple[str, str] | None = None

    def on_train_begin(self, args, state, control, **_: Any) -> None:
        """Look at the rows up to the checkpoint that training goes on from."""
        if state.global_step:
            self._look(state)
            self._stop(state)

    def on_log(self, args, state, control, logs=None, **_: Any) -> None:
        """Ask for a checkpoint and the end where the rows raise an alarm."""
        if logs and "loss" in logs and not control.should_training_stop:
            self._look(state)
            if self.alarm is not None:
                control.should_save = control.should_training_stop = True

    def on_save(self, args, state, control, **_: Any) -> None:
        """Stop when the checkpoint is whole."""
        PartialState().wait_for_everyone()
        self._stop(state)

    def _look(self, state: Any) -> None:
        if self.at_end or state.global_step < state.max_steps:
            self.alarm = ask_first(lambda: self.find_stop(read_jsonl(self.path), state.max_steps))

    def _stop(self, state: Any) -> None:
        if self.alarm is not None:
            seen, advice = self.alarm
            raise TrainingError(
                f"{self.path.parent.name} was stopped at step {state.global_step} of "
                f"{state.max_steps}: {seen}",
                fix=advice,
            )


class ProgressFile(TrainerCallback):
    """Keeps ``progress.json`` while it trains."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_train_begin(self, args, state, control, **_: Any) -> None:
        """Write the number of steps, and from where and when this attempt does them."""
        if state.is_world_process_zero:
            begin_progress(self.folder, num_steps=state.max_steps, first_step=state.global_step)

    def on_train_end(self, args, state, control, **_: Any) -> None:
        """Remove it."""
        if state.is_world_process_zero:
            end_progress(self.folder)


class WarmupCheck(TrainerCallback):
    """Stops a training whose learning rate would still be rising at its last step."""

    def on_train_begin(self, args, state, control, **_: Any) -> None:
        """Compare the steps of the warm-up with all steps.

        Raises:
            TrainingError: if the peak would never be reached; one step would even train nothing.
        """
        num_rising = args.get_warmup_steps(state.max_steps)
        if args.lr_scheduler_type != "constant" and num_rising >= state.max_steps:
            raise TrainingError(
                "the learning rate would never reach its peak",
                got=f"a warm-up of {num_rising} steps in a training of {state.max_steps}",
                fix="lower warmup_steps or warmup_share, or train for more steps",
            )


class WholeCheckpoints(TrainerCallback):
    """Marks each checkpoint once everything in it is written.

    A row of metrics is logged at each checkpoint and at the last step: what was summed up since
    the last row is not in the checkpoint, and a run that goes on from it would log other means.
    """

    def on_step_end(self, args, state, control, **_: Any) -> None:
        """Log where a checkpoint is about to be written, and at the end."""
        if control.should_save or state.global_step >= state.max_steps:
            control.should_log = True

    def on_save(self, args, state, control, model=None, **_: Any) -> None:
        """Mark the checkpoint of this step when every process has written its files.

        Then, and not before, older ones are let go.
        """
        PartialState().wait_for_everyone()
        if state.is_world_process_zero:
            folder = Path(args.output_dir)
            checkpoint = folder / f"checkpoint-{state.global_step}"
            note_quantization(model, checkpoint)
            mark_complete(checkpoint)
            remove_checkpoints(folder, num_kept=_NUM_CHECKPOINTS)


class TrainableTable(TrainerCallback):
    """Prints what trains and what is frozen before the first step: after it, hours may pass.

    Args:
        model: as it is to be trained, before anything is put around it or copied.
    """

    def __init__(self, model: Any) -> None:
        self.table = format_trainable(tabulate_trainable(model))

    def on_train_begin(self, args, state, control, **_: Any) -> None:
        """Print the table once, whatever the number of processes."""
        if state.is_world_process_zero:
            sys.stderr.write(self.table + "\n")


class StepProgress(TrainerCallback):
    """A bar with the time left on a terminal; elsewhere a line every 10 seconds and at the end.

    Leaving its ``with`` block closes the bar, also after an error.

    Args:
        name: of the training.
        shown: the trainer's names of values by which it knows them, and ours.
        looks: whose first value is shown beside them, as a curve over the looks.
    """

    def __init__(
        self, name: str, *, shown: Mapping[str, str], looks: HeldoutRows | None = None
    ) -> None:
        self.name = name
        self.shown = shown
        self.looks = looks
        self.curves: dict[str, list[float]] = {}
        self.numbers: dict[str, float] = {}
        self.bar: Progress | None = None
        self.line = ProgressLine("steps", self._say)

    def on_train_begin(self, args, state, control, **_: Any) -> None:
        """Open the bar, or begin to count."""
        console = Console(file=sys.stderr)
        if not console.is_terminal:
            self.line(state.global_step, state.max_steps)
        else:
            hush(True)
            self.bar = Progress(
                TextColumn("  {task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[values]}"),
                console=console,
            )
            self.bar.add_task(
                self.name, total=state.max_steps, completed=state.global_step, values=""
            )
            self.bar.start()

    def on_log(self, args, state, control, logs=None, **_: Any) -> None:
        """Remember the values to show; the reward is a curve."""
        given = logs or {}
        found = {ours: given[n] for n, ours in self.shown.items() if given.get(n) is not None}
        if "reward" in found:
            self._remember("reward", found.pop("reward"))
        self.numbers |= {name: float(value) for name, value in found.items()}

    def on_step_end(self, args, state, control, **_: Any) -> None:
        """Move the bar, or print a line when the last one is old, and at the end."""
        if self.looks is not None and self.looks.last_step == state.global_step > 0:
            name, value = next(iter(self.looks.values.items()))
            self._remember(f"validation {name}", value)
        values = self._describe()
        if self.bar is not None:
            task = self.bar.task_ids[0]
            self.bar.update(task, completed=state.global_step, values=values)
        else:
            self.line(state.global_step, state.max_steps, values)

    def _remember(self, name: str, value: float) -> None:
        self.curves.setdefault(name, []).append(float(value))

    def _describe(self) -> str:
        curves = (f"{n} {draw_curve(seen)} {seen[-1]:.3g}" for n, seen in self.curves.items())
        return "  ".join(
            (*curves, *(f"{name} {value:.3g}" for name, value in self.numbers.items()))
        )

    def _say(self, line: str) -> None:
        sys.stderr.write(f"  {self.name}: {line}\n")

    def __enter__(self) -> Self:
        """Nothing shows before training begins."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the bar."""
        self.line.end()
        if self.bar is not None:
            self.bar.stop()
            hush(False)


def draw_curve(values: Sequence[float]) -> str:
    """Return values in [0, 1] as a line of bars, ``▁`` for 0 and ``█`` for 1.

    There are at most 24 bars, each the mean of as many values in a row.
    """
    num = min(_MOST_BARS, len(values))
    cuts = [place * len(values) // num for place in range(num + 1)] if num else []
    means = [fmean(values[start:end]) for start, end in pairwise(cuts)]
    return "".join(_BARS[min(7, int(8 * max(0.0, mean)))] for mean in means)
