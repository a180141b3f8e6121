"""RCE and GRPO of the selector on recorded groups, with exact resume after each epoch."""

import shutil
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence

import torch

from groupwise.core import ProgressLine, derive_seed
from groupwise.training.checkpoints import (
    Workspace,
    find_last_checkpoint,
    mark_complete,
    read_step,
    refuse_pickles,
    remove_checkpoints,
    write_budget,
)
from groupwise.training.log import TrainingLog, begin_progress, end_progress
from groupwise_recipes.demo_selection.objectives import (
    GrpoObjective,
    Objective,
    RceObjective,
    compute_rce,
)
from groupwise_recipes.demo_selection.recorded_groups import RecordedGroups
from groupwise_recipes.demo_selection.selector import PointerSelector
from groupwise_recipes.demo_selection.settings import (
    MAX_GRAD_NORM,
    WEIGHT_DECAY,
    SelectorGrpoSettings,
    SelectorRceSettings,
    SelectorTraining,
)

_ROWS_PER_LOOK = 64


def train_selector_rce(
    selector: PointerSelector,
    groups: RecordedGroups,
    settings: SelectorRceSettings,
    *,
    workspace: Workspace,
    validation: RecordedGroups | None = None,
) -> PointerSelector:
    """Train a selector in place by RCE; return it, in evaluation mode.

    Writes ``metrics.jsonl``, ``budget.json`` and the weights after each epoch,
    ``epoch-N.safetensors``. If a whole checkpoint is there, training goes on from
    it and gives, bit for bit, what the uninterrupted one does.
    """
    objective = RceObjective(groups, settings)
    return _Training(selector, groups, settings, workspace, objective).run(validation)


def train_selector_grpo(
    selector: PointerSelector,
    groups: RecordedGroups,
    settings: SelectorGrpoSettings,
    *,
    workspace: Workspace,
    validation: RecordedGroups | None = None,
) -> PointerSelector:
    """Train a selector in place by GRPO; return it, in evaluation mode, in which it also trains.

    Old log-probabilities are those of the selector as it is given. All else is as in
    ``train_selector_rce``; ``on_policy.json`` has the check before the first update.
    """
    first = order_rows(len(groups), settings, seed=workspace.seed, name="grpo", epoch=0)
    objective = GrpoObjective(
        groups,
        settings,
        old_log_probs=score_lists(selector, groups, first),
        record=workspace.folder / "on_policy.json",
    )
    return _Training(selector, groups, settings, workspace, objective).run(validation)


def order_rows(
    num_rows: int, settings: SelectorTraining, *, seed: int, name: str, epoch: int
) -> Sequence[torch.Tensor]:
    """Return the numbers of the queries of each step of an epoch."""
    generator = torch.Generator().manual_seed(derive_seed(seed, name, "order", epoch))
    return torch.randperm(num_rows, generator=generator).split(settings.batch_size)


def score_lists(
    selector: PointerSelector, groups: RecordedGroups, batches: Sequence[torch.Tensor]
) -> torch.Tensor:
    """Return log-probabilities of all lists without dropout, on the CPU, shape [Q, G].

    Kernels may round differently in batches of other rows, or where no gradient is kept: scored in
    the batches that training begins with, they are those of its first step.
    """
    selector.eval()
    device = find_device(selector)
    found = torch.cat(
        [selector.log_probs(*groups.take(rows, device=device)).detach().cpu() for rows in batches]
    )
    return torch.empty_like(found).index_copy(0, torch.cat(list(batches)), found)


def measure_rce(selector: PointerSelector, groups: RecordedGroups) -> float:
    """Return the validation loss: RCE at τ = 1 with raw rewards, mean over queries with a list."""
    log_probs = score_lists(selector, groups, torch.arange(len(groups)).split(_ROWS_PER_LOOK))
    losses = compute_rce(log_probs, groups.rewards, temperature=1.0)
    return float(losses[groups.present.any(1)].mean())


def find_device(selector: PointerSelector) -> torch.device:
    """Return where a selector's weights are."""
    return next(selector.parameters()).device


class _Training:
    """Steps over recorded groups, with rows of metrics and a checkpoint after each epoch."""

    def __init__(
        self,
        selector: PointerSelector,
        groups: RecordedGroups,
        settings: SelectorTraining,
        workspace: Workspace,
        objective: Objective,
    ) -> None:
        self.selector, self.groups, self.settings = selector, groups, settings
        self.workspace, self.objective = workspace, objective
        selector.set_trainable(freeze_backbone=settings.freeze_backbone)
        self.trained = [p for p in selector.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(
            self.trained, lr=settings.learning_rate, weight_decay=WEIGHT_DECAY
        )
        self.metrics = TrainingLog(workspace.metrics)
        self.steps_per_epoch = -(-len(groups) // settings.batch_size)
        self.num_steps = settings.epochs * self.steps_per_epoch
        self.step = 0

    def run(self, validation: RecordedGroups | None) -> PointerSelector:
        folder, device = self.workspace.folder, find_device(self.selector)
        self._resume()
        self.metrics.start(self.step)
        begin_progress(folder, num_steps=self.num_steps, first_step=self.step)
        line = ProgressLine("steps", self._say)
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            for epoch in range(self.step // self.steps_per_epoch, self.settings.epochs):
                self._run_epoch(epoch, line, validation)
                self.selector.save(folder / f"epoch-{epoch + 1}.safetensors")
                self._save_checkpoint()
        self._write_budget(validation)
        end_progress(folder)
        remove_checkpoints(folder)
        return self.selector.eval()

    def _say(self, line: str) -> None:
        sys.stderr.write(f"  {self.workspace.folder.name}: {line}\n")

    def _run_epoch(self, epoch: int, line: ProgressLine, validation: RecordedGroups | None) -> None:
        seed, name = self.workspace.seed, self.objective.name
        self.objective.begin_epoch(epoch)
        self.selector.train(self.objective.has_dropout)
        torch.manual_seed(derive_seed(seed, name, "dropout", epoch))
        whole, recent = _Means(), _Means()
        order = order_rows(len(self.groups), self.settings, seed=seed, name=name, epoch=epoch)
        last_step = self.step + len(order)
        for rows in order:
            values = self._take_step(rows)
            whole.add(values)
            recent.add(values)
            if self.step < last_step and self._is_due():
                self._write(recent.read())
                recent = _Means()
            line(self.step, self.num_steps)
        looked = {} if validation is None else {"eval_loss": measure_rce(self.selector, validation)}
        self._write(recent.read() | looked)
        self.objective.end_epoch(whole.read())

    def _is_due(self) -> bool:
        every_steps = self.settings.log_every_steps
        return every_steps is not None and self.step % every_steps == 0

    def _take_step(self, rows: torch.Tensor) -> dict[str, float]:
        given = self.groups.take(rows, device=find_device(self.selector))
        log_probs = self.selector.log_probs(*given)
        loss, values = self.objective.compute(log_probs, rows, done=self.step / self.num_steps)
        self.optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.trained, MAX_GRAD_NORM)
        self.optimizer.step()
        self.step += 1
        return {"loss": float(loss.detach()), **values, "grad_norm": float(norm)}

    def _write(self, values: dict[str, float]) -> None:
        epoch = self.step / self.steps_per_epoch
        self.metrics.write(self.step, values | self.objective.describe(), epoch=epoch)

    def _save_checkpoint(self) -> None:
        before = find_last_checkpoint(self.workspace.folder)
        checkpoint = self.workspace.folder / f"checkpoint-{self.step}"
        checkpoint.mkdir(parents=True)
        parts = {
            "selector": self.selector,
            "optimizer": self.optimizer,
            "objective": self.objective,
        }
        torch.save(
            {name: part.state_dict() for name, part in parts.items()}, checkpoint / "state.pt"
        )
        mark_complete(checkpoint)
        if before is not None:
            shutil.rmtree(before)

    def _resume(self) -> None:
        checkpoint = find_last_checkpoint(self.workspace.folder)
        if checkpoint is None:
            return
        with refuse_pickles(checkpoint):
            state = torch.load(checkpoint / "state.pt", map_location="cpu", weights_only=True)
        self.selector.load_state_dict(state["selector"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.objective.load_state_dict(state["objective"])
        self.step = read_step(checkpoint)

    def _write_budget(self, validation: RecordedGroups | None) -> None:
        num_lists = self.settings.epochs * int(self.groups.present.sum())
        looks = {}
        if validation is not None:
            looks = {"num_looks": self.settings.epochs, "num_validation_items": len(validation)}
        write_budget(
            self.workspace.folder,
            num_steps=self.num_steps,
            num_samples=num_lists,
            num_tokens=num_lists * self.groups.lists.shape[-1],
            **looks,
        )


class _Means:
    """Means of values over steps, by their queries; names in ``num_`` are counts and summed."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = defaultdict(float)

    def add(self, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._sums[name] += value if name.startswith("num_") else value * values["num_groups"]

    def read(self) -> dict[str, float]:
        num_groups = self._sums["num_groups"]
        found = {
            name: int(value) if name.startswith("num_") else value / num_groups
            for name, value in self._sums.items()
        }
        return found | {"dead_groups": found["num_dead_groups"] / num_groups}
