"""Around training steps: metric rows, progress, whole checkpoints, held-out checks."""

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

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

from groupwise.core import append_jsonl, read_jsonl, write_jsonl
from groupwise.training.checkpoints import mark_complete

RenameMetrics = Callable[[Mapping[str, float]], dict[str, float]]
CheckHeldout = Callable[[], Mapping[str, float]]

_SECONDS_BETWEEN_LINES = 15.0


class MetricRows(TrainerCallback):
    """Writes one row of ``metrics.jsonl`` for each logged step.

    After a crash, rows beyond the checkpoint that training goes on from are dropped first,
    so that the file is that of an uninterrupted run.
    """

    def __init__(self, path: Path, *, rename: RenameMetrics, num_epochs: int) -> None:
        self.path = path
        self.rename = rename
        self.num_epochs = num_epochs

    def on_train_begin(self, args, state, control, **_: Any) -> None:
        """Drop rows of steps that will be done again."""
        if self.path.exists():
            kept = [row for row in read_jsonl(self.path) if row["step"] <= state.global_step]
            write_jsonl(self.path, kept)

    def on_log(self, args, state, control, logs=None, **_: Any) -> None:
        """Append the row of this step."""
        if logs and "loss" in logs:
            epoch = self.num_epochs * state.global_step / max(state.max_steps, 1)
            row = {"step": state.global_step, "epoch": round(epoch, 4), **self.rename(logs)}
            append_jsonl(self.path, row)


class HeldoutRows(TrainerCallback):
    """Runs a held-out check every so many steps and writes its row to ``metrics.jsonl``."""

    def __init__(self, path: Path, *, check: CheckHeldout, every_steps: int) -> None:
        self.path = path
        self.check = check
        self.every_steps = every_steps

    def on_step_end(self, args, state, control, model=None, **_: Any) -> None:
        """Check after every ``every_steps`` steps and after the last one."""
        if state.global_step % self.every_steps and state.global_step != state.max_steps:
            return
        was_training = model.training
        model.eval()
        values = self.check()
        model.train(was_training)
        named = {f"heldout/{name}": value for name, value in values.items()}
        append_jsonl(self.path, {"step": state.global_step, **named})


class WholeCheckpoints(TrainerCallback):
    """Marks each checkpoint once everything in it is written."""

    def on_save(self, args, state, control, **_: Any) -> None:
        """Mark the checkpoint of this step."""
        mark_complete(Path(args.output_dir) / f"checkpoint-{state.global_step}")


class StepProgress(TrainerCallback):
    """A bar with the time left on a terminal, and a line every 15 seconds elsewhere."""

    def __init__(self, name: str, *, shown: tuple[str, ...]) -> None:
        self.name = name
        self.shown = shown
        self.values = ""
        self.bar: Progress | None = None
        self.started_at = self.printed_at = time.monotonic()
        self.first_step = 0

    def on_train_begin(self, args, state, control, **_: Any) -> None:
        """Open the bar."""
        self.started_at = self.printed_at = time.monotonic()
        self.first_step = state.global_step
        console = Console(file=sys.stderr)
        if console.is_terminal:
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
        """Remember the values to show."""
        found = {name: logs[name] for name in self.shown if name in (logs or {})}
        if found:
            self.values = "  ".join(f"{name} {float(value):.3g}" for name, value in found.items())

    def on_step_end(self, args, state, control, **_: Any) -> None:
        """Move the bar, or print a line when the last one is old."""
        if self.bar is not None:
            task = self.bar.task_ids[0]
            self.bar.update(task, completed=state.global_step, values=self.values)
        elif time.monotonic() - self.printed_at > _SECONDS_BETWEEN_LINES:
            self.printed_at = time.monotonic()
            done = state.global_step - self.first_step
            left_s = (
                (self.printed_at - self.started_at) / done * (state.max_steps - state.global_step)
            )
            sys.stderr.write(
                f"  {self.name} {state.global_step}/{state.max_steps}"
                f"  {left_s:.0f} s left  {self.values}\n"
            )

    def on_train_end(self, args, state, control, **_: Any) -> None:
        """Close the bar."""
        if self.bar is not None:
            self.bar.stop()
