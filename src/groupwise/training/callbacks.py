"""Around training steps: the loop, files, progress, checkpoints, looks at validation, trackers."""

import os
import shutil
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any, Self

from accelerate import PartialState
from accelerate.utils import gather_object
from rich import progress as bars
from rich.console import Console
from safetensors.torch import load_file, save_file
from transformers import TrainerCallback
from transformers.integrations.integration_utils import get_reporting_integration_callbacks

from groupwise.core import ProgressLine, TrainingError, append_jsonl, hush, read_jsonl, write_json
from groupwise.core.memory import read_memory
from groupwise.models.quantization import note_quantization
from groupwise.models.trainable import (
    format_trainable,
    list_trainable,
    note_trained,
    tabulate_trainable,
)
from groupwise.training.checkpoints import (
    Workspace,
    find_start,
    mark_complete,
    refuse_pickles,
    remove_checkpoints,
)
from groupwise.training.log import TrainingLog, begin_progress, end_progress
from groupwise.training.processes import ask_first, count_processes, is_first_process
from groupwise.training.settings import PROJECT, GrpoSettings, TrainerSettings, name_memory_settings
from groupwise.training.sharding import WholeModel, gather_weights, join

CheckHeldout = Callable[[], Mapping[str, float]]
FindStop = Callable[[Sequence[Mapping[str, Any]], int], tuple[str, str] | None]
"""Of rows and the number of all steps: what was seen and what to do, or None."""

_NUM_CHECKPOINTS = 2
_BARS, _MOST_BARS = "▁▂▃▄▅▆▇█", 24


def run_trainer(
    make: Callable[[list[TrainerCallback], Path | None], Any],
    policy: Any,
    settings: TrainerSettings,
    workspace: Workspace,
    *,
    check_heldout: CheckHeldout | None,
    find_stop: FindStop | None,
    shown: Mapping[str, str],
    **rows: Any,
) -> tuple[Any, Mapping[str, int]]:
    """Train a policy in place from its newest checkpoint; return trainer and looks' budget."""
    model, start = policy.model, find_start(workspace.folder)
    trackers = Trackers(settings.report_to if is_first_process() else ())
    whole, table = WholeModel(model), format_trainable(tabulate_trainable(model))
    looks = None
    if settings.validation is not None and check_heldout is None:
        raise TrainingError(
            "validation is asked for, and there is no validation split to look at",
            fix="leave validation out, or give the data a validation split",
        )
    if check_heldout is not None and settings.has_looks:
        looks = Looks(workspace, settings, check=check_heldout, trackers=trackers)
    metrics = MetricRows(workspace.metrics, trackers=trackers, **rows)
    is_last = isinstance(settings, GrpoSettings)  # others build on what comes out of SFT
    with (
        StepProgress(
            workspace.folder.name, shown=shown, looks=looks if is_last else None
        ) as progress,
        name_memory_settings(settings),
    ):
        callbacks = [trackers, metrics, *([looks] if looks else []), WholeCheckpoints()]
        if find_stop is not None:
            callbacks.append(AlarmStop(workspace.metrics, find_stop, at_end=not is_last))
        try:
            trainer = make([*callbacks, progress], start)
            if is_first_process():  # before the first step: after it, hours may pass
                sys.stderr.write(table + "\n")
            with refuse_pickles(start):
                trainer.train(resume_from_checkpoint=start)
            policy.model = whole.fill(trainer)
        finally:
            # The frozen copy of the adapter that GRPO's KL penalty is measured against.
            if "ref" in getattr(policy.model, "peft_config", {}):
                policy.model.delete_adapter("ref")
    note_trained(policy.model)
    return trainer, looks.finish(policy.model) if looks and is_first_process() else {}


class Trackers(TrainerCallback):
    """Tells experiment trackers, by Transformers' own callbacks, the rows of ``metrics.jsonl``."""

    def __init__(self, names: Sequence[str]) -> None:
        # What each calls the project that runs are listed under.
        for name, variable in (("wandb", "WANDB_PROJECT"), ("mlflow", "MLFLOW_EXPERIMENT_NAME")):
            if name in names:
                os.environ.setdefault(variable, PROJECT)
        self._trackers = [make() for make in get_reporting_integration_callbacks(list(names))]
        self._has_wandb, self._owns_wandb_run = "wandb" in names, False

    def on_train_begin(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        if self._has_wandb:
            self._owns_wandb_run = import_module("wandb").run is None
        for tracker in self._trackers:
            tracker.on_train_begin(args, state, control, **named)

    def log(self, values: Mapping[str, float], args: Any, state: Any, control: Any) -> None:
        for tracker in self._trackers:
            tracker.on_log(args, state, control, logs=dict(values))

    def on_train_end(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        for tracker in self._trackers:
            tracker.on_train_end(args, state, control, **named)
        if self._owns_wandb_run:
            import_module("wandb").finish()


class MetricRows(TrainerCallback):
    """Writes ``metrics.jsonl``, with what ``tell`` adds, ``progress.json`` and ``memory.json``."""

    def __init__(
        self,
        path: Path,
        *,
        rename: Callable[[Mapping[str, float]], dict[str, float]],
        num_epochs: float,
        trackers: Trackers,
        tell: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        self.log, self.folder = TrainingLog(path), path.parent
        self.rename, self.tell = rename, tell
        self.num_epochs, self.trackers = num_epochs, trackers

    def on_train_begin(self, args, state, control, **_: Any) -> None:
        if is_first_process():
            begin_progress(self.folder, num_steps=state.max_steps, first_step=state.global_step)
            self.log.start(state.global_step)

    def on_log(self, args, state, control, logs=None, **_: Any) -> None:
        if not logs or "loss" not in logs:
            return
        taken = [read_memory()]
        if count_processes() > 1:
            taken = gather_object(taken)
        told = self.tell()
        if not is_first_process():
            return
        step, facts = state.global_step, told.pop("facts", None)
        if None not in taken:
            found = [asdict(one) for one in taken if one is not None]
            write_json(self.folder / "memory.json", {"step": step, "processes": found})
        epoch = self.num_epochs * step / max(state.max_steps, 1)
        row = self.log.write(step, self.rename(logs) | told, epoch=epoch, facts=facts)
        values = {name: value for name, value in row.items() if name not in ("step", "facts")}
        self.trackers.log(values, args, state, control)

    def on_train_end(self, args, state, control, **_: Any) -> None:
        if is_first_process():
            end_progress(self.folder)


class Looks(TrainerCallback):
    """Checks on held-out items while it trains: rows, curves, and with ``validation`` a choice.

    Every look is counted: the best of many is better than it is by luck.
    """

    def __init__(
        self,
        workspace: Workspace,
        settings: TrainerSettings,
        *,
        check: CheckHeldout,
        trackers: Trackers,
    ) -> None:
        self.choice, self.check, self.trackers = settings.validation, check, trackers
        self.every_steps: Any = settings.heldout_every_steps
        if self.choice is not None:
            self.every_steps = self.choice.every_steps
        self.path, self.kept = workspace.metrics, workspace.folder / "best"
        self.last_step, self.chosen_by, self.num_items = 0, "", 0
        self.values: Mapping[str, float] = {}
        self.looks: dict[int, float] = {}

    @property
    def best_step(self) -> int:
        return max(self.looks, key=lambda step: (self.looks[step], -step))

    @property
    def keeps_best(self) -> bool:
        return self.choice is not None and self.choice.select == "best"

    def on_train_begin(self, args, state, control, **_: Any) -> None:
        if self.choice is None:
            return
        if self.keeps_best and args.fsdp and args.fsdp_plugin_args["fsdp_version"] == 1:
            raise TrainingError(
                "weights that FSDP1 spreads over processes are kept in checkpoints alone",
                fix="set validation.select to last, or take FSDP2",
            )
        # Once: the first process has dropped rows of steps that will be done again.
        rows = ask_first(lambda: read_jsonl(self.path) if self.path.is_file() else [])
        for row in rows:
            if names := [name for name in row if name.startswith("heldout/")]:
                self.chosen_by = names[0].removeprefix("heldout/")
                self.looks[row["step"]] = row[names[0]]
        self.num_items = max((int(row.get("heldout/n", 0)) for row in rows), default=0)

    def on_step_end(self, args, state, control, model: Any = None, **_: Any) -> None:
        step, choice = state.global_step, self.choice
        if step % self.every_steps and step != state.max_steps:
            return
        with gather_weights(model):
            values = ask_first(lambda: self._check(model))
        self.last_step, self.values = step, values
        named = {f"heldout/{name}": value for name, value in values.items()}
        if is_first_process():
            append_jsonl(self.path, {"step": step, **named})
        self.trackers.log(named, args, state, control)
        if choice is None:
            return
        self.chosen_by = next(iter(values))
        self.looks[step] = values[self.chosen_by]
        self.num_items = int(values.get("n", 0))
        if self.best_step == step and self.keeps_best:
            names = list_trainable(model)
            weights = {n: join(p).cpu() for n, p in model.named_parameters() if n in names}
            if is_first_process():
                self.kept.mkdir(exist_ok=True)
                save_file(weights, self.kept / f"{step}.safetensors")
                if args.save_strategy == "no":
                    self._drop_others()
        num_worse = sum(look > self.best_step for look in self.looks)
        if choice.patience is not None and num_worse >= choice.patience:
            control.should_training_stop = control.should_log = True
            control.should_save = False  # a run that goes on from here would train further

    def on_save(self, args, state, control, **_: Any) -> None:
        """Drop what was kept before the best look: no checkpoint leads back there any more."""
        if is_first_process():
            self._drop_others()

    def finish(self, model: Any) -> Mapping[str, int]:
        """Put the chosen weights into the model; write ``selection.json``; return the budget."""
        if self.choice is None:
            return {}
        kept_step = last_step = max(self.looks)
        if self.keeps_best:
            kept_step = self.best_step
            weights = load_file(self.kept / f"{kept_step}.safetensors")
            for name, parameter in model.named_parameters():
                if name in weights:
                    parameter.data.copy_(weights[name])
            shutil.rmtree(self.kept)
        looks = [{"step": step, self.chosen_by: one} for step, one in sorted(self.looks.items())]
        record = {"select": self.choice.select, "chosen_by": self.chosen_by, "kept_step": kept_step}
        record |= {"last_step": last_step, "num_items": self.num_items, "looks": looks}
        write_json(self.path.parent / "selection.json", record)
        return {"num_looks": len(looks), "num_validation_items": self.num_items}

    def _check(self, model: Any) -> Mapping[str, float]:
        was_training = model.training
        model.eval()
        try:
            return self.check()
        finally:
            model.train(was_training)

    def _drop_others(self) -> None:
        for path in self.kept.glob("*.safetensors") if self.looks else ():
            if path.stem != str(self.best_step):
                path.unlink()


class AlarmStop(TrainerCallback):
    """Ends a training at an alarm, by an error, with a checkpoint that it can go on from."""

    def __init__(self, path: Path, find_stop: FindStop, *, at_end: bool) -> None:
        self.path, self.find_stop, self.at_end = path, find_stop, at_end
        self.alarm: tuple[str, str] | None = None

    def on_train_begin(self, args, state, control, **_: Any) -> None:
        if state.global_step:
            self._look(state)
            self._stop(state)

    def on_log(self, args, state, control, logs=None, **_: Any) -> None:
        if logs and "loss" in logs and not control.should_training_stop:
            self._look(state)
            if self.alarm is not None:
                control.should_save = control.should_training_stop = True

    def on_save(self, args, state, control, **_: Any) -> None:
        PartialState().wait_for_everyone()
        self._stop(state)

    def _look(self, state: Any) -> None:
        if self.at_end or state.global_step < state.max_steps:
            self.alarm = ask_first(lambda: self.find_stop(read_jsonl(self.path), state.max_steps))

    def _stop(self, state: Any) -> None:
        if self.alarm is not None:
            seen, advice = self.alarm
            at = f"was stopped at step {state.global_step} of {state.max_steps}"
            raise TrainingError(f"{self.path.parent.name} {at}: {seen}", fix=advice)


class WholeCheckpoints(TrainerCallback):
    """Marks each checkpoint once every process has written its files, and drops older ones."""

    def on_step_end(self, args, state, control, **_: Any) -> None:
        if control.should_save or state.global_step >= state.max_steps:
            control.should_log = True

    def on_save(self, args, state, control, model=None, **_: Any) -> None:
        PartialState().wait_for_everyone()
        if is_first_process():
            folder = Path(args.output_dir)
            checkpoint = folder / f"checkpoint-{state.global_step}"
            note_quantization(model, checkpoint)
            mark_complete(checkpoint)
            remove_checkpoints(folder, num_kept=_NUM_CHECKPOINTS)


class StepProgress(TrainerCallback):
    """A bar with the time left on a terminal; elsewhere a line every 10 seconds and at the end."""

    def __init__(self, name: str, *, shown: Mapping[str, str], looks: Looks | None = None) -> None:
        self.name, self.shown, self.looks = name, shown, looks
        self.curves: defaultdict[str, list[float]] = defaultdict(list)
        self.numbers: dict[str, float] = {}
        self.bar: bars.Progress | None = None
        self.line = ProgressLine("steps", self._say)

    def on_train_begin(self, args, state, control, **_: Any) -> None:
        console = Console(file=sys.stderr)
        if not console.is_terminal:
            self.line(state.global_step, state.max_steps)
            return
        hush(True)
        self.bar = bars.Progress(
            bars.TextColumn("  {task.description}"),
            bars.BarColumn(),
            bars.MofNCompleteColumn(),
            bars.TimeElapsedColumn(),
            bars.TimeRemainingColumn(),
            bars.TextColumn("{task.fields[values]}"),
            console=console,
        )
        self.bar.add_task(self.name, total=state.max_steps, completed=state.global_step, values="")
        self.bar.start()

    def on_log(self, args, state, control, logs=None, **_: Any) -> None:
        given = logs or {}
        found = {ours: given[n] for n, ours in self.shown.items() if given.get(n) is not None}
        if "reward" in found:
            self.curves["reward"].append(float(found.pop("reward")))
        self.numbers |= {name: float(value) for name, value in found.items()}

    def on_step_end(self, args, state, control, **_: Any) -> None:
        if self.looks is not None and self.looks.last_step == state.global_step > 0:
            name, value = next(iter(self.looks.values.items()))
            self.curves[f"validation {name}"].append(float(value))
        curves = (f"{n} {draw_curve(seen)} {seen[-1]:.3g}" for n, seen in self.curves.items())
        numbers = (f"{name} {value:.3g}" for name, value in self.numbers.items())
        values = "  ".join((*curves, *numbers))
        if self.bar is None:
            self.line(state.global_step, state.max_steps, values)
        else:
            self.bar.update(self.bar.task_ids[0], completed=state.global_step, values=values)

    def _say(self, line: str) -> None:
        sys.stderr.write(f"  {self.name}: {line}\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()
            hush(False)


def draw_curve(values: Sequence[float]) -> str:
    """Return values in [0, 1] as at most 24 bars, each the mean of as many values in a row."""
    num = min(_MOST_BARS, len(values))
    cuts = [place * len(values) // num for place in range(num + 1)] if num else []
    means = [fmean(values[start:end]) for start, end in pairwise(cuts)]
    return "".join(_BARS[min(7, int(8 * max(0.0, mean)))] for mean in means)
