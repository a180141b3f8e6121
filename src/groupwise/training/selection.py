"""Looks at validation while a policy trains: when to stop, and whose step's weights are kept.

Every look is counted and written down: the best of many looks is better than it is by luck, and a
comparison has to know how many there were.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from groupwise.core import TrainingError, read_jsonl, write_json
from groupwise.models import list_trainable
from groupwise.training.callbacks import CheckHeldout, HeldoutRows
from groupwise.training.processes import ask_first, is_first_process
from groupwise.training.settings import TrainerSettings, ValidationSettings
from groupwise.training.sharding import join
from groupwise.training.trackers import Trackers
from groupwise.training.workspace import Workspace

_LOOK = "heldout/"


class BestOnValidation(HeldoutRows):
    """Held-out checks that end a training, and keep the weights of the best one.

    A look is better if the first of its values is higher; of equal ones the first is the best.
    """

    def __init__(
        self,
        workspace: Workspace,
        settings: ValidationSettings,
        *,
        check: CheckHeldout,
        trackers: Trackers,
    ) -> None:
        super().__init__(
            workspace.metrics, check=check, every_steps=settings.every_steps, trackers=trackers
        )
        self.settings = settings
        self.kept = workspace.folder / "best"
        self.chosen_by = ""
        self.looks: dict[int, float] = {}
        self.num_items = 0

    @property
    def best_step(self) -> int:
        """The step of the first of the best looks."""
        return max(self.looks, key=lambda step: (self.looks[step], -step))

    def on_train_begin(self, args, state, control, **_: Any) -> None:
        """Remember the looks before the step that training goes on from."""
        is_flat = args.fsdp and args.fsdp_plugin_args["fsdp_version"] == 1
        if self.settings.select == "best" and is_flat:
            raise TrainingError(
                "weights that FSDP1 spreads over processes are kept in checkpoints alone",
                fix="set validation.select to last, or take FSDP2",
            )
        # Once: the first process has dropped rows of steps that will be done again.
        rows = ask_first(lambda: read_jsonl(self.path) if self.path.is_file() else [])
        for row in rows:
            if names := [name for name in row if name.startswith(_LOOK)]:
                self.chosen_by = names[0].removeprefix(_LOOK)
                self.looks[row["step"]] = row[names[0]]
        self.num_items = max((int(row.get("heldout/n", 0)) for row in rows), default=0)

    def on_step_end(self, args, state, control, model: Any = None, **_: Any) -> None:
        """Look where a look is due; stop after too many that were no better."""
        super().on_step_end(args, state, control, model=model)
        if self.last_step != state.global_step:
            return
        self.chosen_by = next(iter(self.values))
        self.looks[state.global_step] = self.values[self.chosen_by]
        self.num_items = int(self.values.get("n", 0))
        is_best = self.best_step == state.global_step
        if is_best and self.settings.select == "best":
            self._keep(model, is_only=args.save_strategy == "no")
        num_worse = sum(step > self.best_step for step in self.looks)
        if self.settings.patience is not None and num_worse >= self.settings.patience:
            control.should_training_stop = control.should_log = True
            control.should_save = False  # a run that goes on from here would train further

    def on_save(self, args, state, control, **_: Any) -> None:
        """Drop what was kept before the best look: no checkpoint leads back there any more."""
        if is_first_process():
            self._drop_others()

    def finish(self, model: Any) -> Mapping[str, int]:
        """Put the chosen weights into the model; return what the looks add to the budget.

        Writes ``selection.json``: the looks, and the step whose weights the policy has.
        """
        kept_step = max(self.looks)
        if self.settings.select == "best":
            kept_step = self.best_step
            weights = load_file(self._file(kept_step))
            for name, parameter in model.named_parameters():
                if name in weights:
                    parameter.data.copy_(weights[name])
            shutil.rmtree(self.kept)
        looks = [
            {"step": step, self.chosen_by: value} for step, value in sorted(self.looks.items())
        ]
        record = {
            "select": self.settings.select,
            "chosen_by": self.chosen_by,
            "kept_step": kept_step,
        }
        record |= {"last_step": max(self.looks), "num_items": self.num_items, "looks": looks}
        write_json(self.path.parent / "selection.json", record)
        return {"num_looks": len(looks), "num_validation_items": self.num_items}

    def _keep(self, model: Any, *, is_only: bool) -> None:
        names = list_trainable(model)
        values = {n: join(p).cpu() for n, p in model.named_parameters() if n in names}
        if not is_first_process():
            return
        self.kept.mkdir(exist_ok=True)
        save_file(values, self._file(self.best_step))
        if is_only:
            self._drop_others()

    def _drop_others(self) -> None:
        for path in self.kept.glob("*.safetensors") if self.looks else ():
            if path != self._file(self.best_step):
                path.unlink()

    def _file(self, step: int) -> Path:
        return self.kept / f"{step}.safetensors"


def open_looks(
    settings: TrainerSettings,
    workspace: Workspace,
    check: CheckHeldout | None,
    *,
    trackers: Trackers,
) -> HeldoutRows | None:
    """Return the looks that settings ask for, or None: to choose by, or to be drawn alone.

    Raises:
        TrainingError: if they choose and there is nothing to look at.
    """
    every_steps = settings.heldout_every_steps
    if settings.validation is not None:
        if check is None:
            raise TrainingError(
                "validation is asked for, and there is no validation split to look at",
                fix="leave validation out, or give the data a validation split",
            )
        return BestOnValidation(workspace, settings.validation, check=check, trackers=trackers)
    if check is None or every_steps is None:
        return None
    return HeldoutRows(workspace.metrics, check=check, every_steps=every_steps, trackers=trackers)
