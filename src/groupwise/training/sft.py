"""Supervised fine-tuning with TRL's SFTTrainer: the warm-up before GRPO.

The rows of all epochs are laid out in one fixed order that follows from the seed, so a run
that is killed and continued sees exactly the rows of an uninterrupted one.
"""

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from groupwise.core import TrainingError, derive_seed, seed_everything
from groupwise.models import Policy, prepare_trainable
from groupwise.training.arguments import build_arguments
from groupwise.training.callbacks import MetricRows, StepProgress, WholeCheckpoints
from groupwise.training.checkpoints import find_last_checkpoint, remove_checkpoints
from groupwise.training.rows import RowCollator, RowsOfEpoch
from groupwise.training.settings import SftSettings

_KEPT_METRICS = ("loss", "learning_rate", "grad_norm", "mean_token_accuracy", "entropy")


def train_sft(
    policy: Policy, rows: RowsOfEpoch, settings: SftSettings, *, folder: Path, seed: int
) -> Policy:
    """Fine-tune a policy on (example, target) rows and return the trained one.

    Writes ``metrics.jsonl`` and checkpoints to ``folder``; if whole checkpoints are already
    there, training continues from the newest.

    Raises:
        TrainingError: if there are no rows, or epochs differ in their number of rows.
        ModelError: if no parameter trains.
    """
    from datasets import Dataset
    from trl import SFTConfig

    schedule = _lay_out(rows, num_epochs=settings.epochs, seed=seed)
    seed_everything(derive_seed(seed, "sft"))
    model = prepare_trainable(policy.model, settings.trainable)
    trained = Policy(model, policy.processor, policy.has_vision)
    arguments = SFTConfig(
        **build_arguments(settings, folder=folder, seed=seed),
        num_train_epochs=1,
        per_device_train_batch_size=settings.batch_size,
        label_smoothing_factor=settings.label_smoothing,
        max_length=None,
        dataset_kwargs={"skip_prepare_dataset": True},
        train_sampling_strategy="sequential",
    )
    collate = RowCollator(trained, augmentation=settings.augmentation, seed=seed)
    trainer = _make_trainer(
        model=model,
        args=arguments,
        train_dataset=Dataset.from_dict({"place": list(range(len(schedule)))}),
        processing_class=policy.processor,
        data_collator=lambda items: collate([schedule[item["place"]] for item in items]),
        callbacks=[
            MetricRows(
                folder / "metrics.jsonl", rename=_rename_metrics, num_epochs=settings.epochs
            ),
            WholeCheckpoints(),
            StepProgress("sft", shown=("loss",)),
        ],
    )
    trainer.train(resume_from_checkpoint=find_last_checkpoint(folder))
    remove_checkpoints(folder)
    model.eval()
    return trained


def _lay_out(rows: RowsOfEpoch, *, num_epochs: int, seed: int) -> list[tuple[int, int, Any]]:
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


def _make_trainer(**named: Any) -> Any:
    from trl import SFTTrainer

    class _Trainer(SFTTrainer):
        """SFTTrainer that takes rows as they are scheduled and writes no model card."""

        def _set_signature_columns_if_needed(self) -> None:
            self._signature_columns = ["place"]

        def create_model_card(self, *_: Any, **__: Any) -> None:
            pass

    return _Trainer(**named)
