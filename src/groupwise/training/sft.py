"""Supervised fine-tuning with TRL's SFTTrainer: the warm-up before GRPO.

The rows of all epochs are laid out in one fixed order that follows from the seed, so a run
that is killed and continued sees exactly the rows of an uninterrupted one.
"""

import random
from collections.abc import Mapping
from typing import Any

from groupwise.core import TrainingError, derive_seed, seed_everything
from groupwise.models import Policy, prepare_trainable, silence_libraries
from groupwise.training.arguments import build_arguments
from groupwise.training.budget import write_budget
from groupwise.training.callbacks import (
    CheckHeldout,
    MetricRows,
    ProgressFile,
    StepProgress,
    TrainableTable,
    WarmupCheck,
    WholeCheckpoints,
)
from groupwise.training.checkpoints import find_last_checkpoint, remove_checkpoints
from groupwise.training.memory import name_memory_settings
from groupwise.training.read_ahead import ReadAhead
from groupwise.training.rows import RowCollator
from groupwise.training.selection import open_validation
from groupwise.training.settings import SftSettings
from groupwise.training.sft_rows import RowsOfEpoch
from groupwise.training.sft_trainer import make_sft_trainer
from groupwise.training.trackers import Trackers
from groupwise.training.workspace import Workspace

_KEPT_METRICS = (
    "loss",
    "learning_rate",
    "grad_norm",
    "mean_token_accuracy",
    "entropy",
    "tokens_per_s",
)


@silence_libraries()
def train_sft(
    policy: Policy,
    rows: RowsOfEpoch,
    settings: SftSettings,
    *,
    workspace: Workspace,
    check_heldout: CheckHeldout | None = None,
) -> Policy:
    """Fine-tune a policy in place on (example, target) rows; return it.

    Writes ``metrics.jsonl``, ``budget.json`` and checkpoints to the workspace; if whole
    checkpoints are already there, training continues from the newest. Before it starts, stderr
    says what trains. ``check_heldout`` is called where ``validation`` asks for a look; its values
    go to the metrics.

    Raises:
        TrainingError: if there are no rows, if epochs differ in their number of rows, if the
            warm-up of the learning rate takes all steps, or if memory does not suffice.
        ModelError: if no parameter trains, or the model is inside a PEFT model.
    """
    from datasets import Dataset
    from trl.trainer.sft_config import SFTConfig

    schedule = lay_out_rows(rows, num_epochs=settings.epochs, seed=workspace.seed)
    seed_everything(derive_seed(workspace.seed, "sft"))
    model = policy.model = prepare_trainable(policy.model, settings.trainable)
    arguments = SFTConfig(
        **build_arguments(settings, workspace, dtype=policy.model.dtype),
        num_train_epochs=1,
        per_device_train_batch_size=settings.batch_size,
        label_smoothing_factor=settings.label_smoothing,
        max_length=None,
        dataset_kwargs={"skip_prepare_dataset": True},
        train_sampling_strategy="sequential",
    )
    collate = RowCollator(policy, augmentation=settings.augmentation, seed=workspace.seed)
    read = ReadAhead(
        lambda places: collate([schedule[place] for place in places]), num_rows=len(schedule)
    )
    trackers = Trackers(settings.report_to)
    validation = open_validation(settings, workspace, check_heldout, trackers=trackers)
    with (
        StepProgress(workspace.folder.name, shown={"loss": "loss"}) as progress,
        name_memory_settings(settings),
    ):
        trainer = make_sft_trainer(
            model=model,
            args=arguments,
            train_dataset=Dataset.from_dict({"place": list(range(len(schedule)))}),
            processing_class=policy.processor,
            data_collator=lambda items: read([item["place"] for item in items]),
            callbacks=[
                WarmupCheck(),
                trackers,
                ProgressFile(workspace.folder),
                MetricRows(
                    workspace.metrics,
                    rename=_rename_metrics,
                    num_epochs=settings.epochs,
                    trackers=trackers,
                ),
                *([validation] if validation else []),
                WholeCheckpoints(),
                TrainableTable(model),
                progress,
            ],
        )
        trainer.train(resume_from_checkpoint=find_last_checkpoint(workspace.folder))
    taught = schedule[: trainer.state.global_step * trainer.get_total_train_batch_size(arguments)]
    write_budget(
        workspace.folder,
        num_steps=trainer.state.global_step,
        num_samples=len(taught),
        num_tokens=sum(len(collate.encode_target(row)) for _, _, row in taught),
        **(validation.finish(model) if validation else {}),
    )
    remove_checkpoints(workspace.folder)
    model.eval()
    return policy


def lay_out_rows(rows: RowsOfEpoch, *, num_epochs: int, seed: int) -> list[tuple[int, int, Any]]:
    """Return (epoch, index, row) of every step in order; each epoch is shuffled by its seed."""
    schedule: list[tuple[int, int, Any]] = []
    sizes: set[int] = set()
    for epoch in range(num_epochs):
        items = [(epoch, index, row) for index, row in enumerate(rows(epoch))]
        sizes.add(len(items))
        random.Random(derive_seed(seed, "order", epoch)).shuffle(items)
        schedule += items
    if sizes == {0}:
        raise TrainingError("there are no rows to train on", fix="check the splits")
    if len(sizes) > 1:
        raise TrainingError("epochs differ in their number of rows", got=sorted(sizes))
    return schedule


def _rename_metrics(logs: Mapping[str, float]) -> dict[str, float]:
    return {name: float(logs[name]) for name in _KEPT_METRICS if name in logs}
