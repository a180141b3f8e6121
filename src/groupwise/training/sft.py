"""Supervised fine-tuning with TRL's SFTTrainer: the warm-up before GRPO.

The rows of all epochs are laid out in an order that follows from the seed, so that a continued run
sees the rows of an uninterrupted one. Pictures are changed at random, each from its own seed.
"""

import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from operator import itemgetter
from pathlib import Path
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from groupwise.core import (
    Example,
    TrainingError,
    derive_seed,
    keep_freed_memory,
    open_picture,
    seed_everything,
)
from groupwise.data.augmentation import PictureAugmentation, augment_picture
from groupwise.models.policy import Policy
from groupwise.models.processor import TOKEN_TYPES
from groupwise.models.prompts import encode_words
from groupwise.models.quantization import keep_adapter_dtype
from groupwise.models.silence import silence_libraries
from groupwise.models.trainable import prepare_trainable
from groupwise.training import sharding
from groupwise.training.callbacks import CheckHeldout, FindStop, run_trainer
from groupwise.training.checkpoints import Workspace, remove_checkpoints, write_budget
from groupwise.training.processes import count_processes, divide_batch, is_first_process
from groupwise.training.settings import (
    GrpoSettings,
    RowsOfEpoch,
    SftRow,
    SftSettings,
    build_arguments,
)

IGNORED = -100
_KEPT_METRICS = ("loss", "learning_rate", "grad_norm", "mean_token_accuracy", "entropy")
_KEPT_METRICS += ("tokens_per_s",)


@silence_libraries()
def train_sft(
    policy: Policy,
    rows: RowsOfEpoch,
    settings: SftSettings,
    *,
    workspace: Workspace,
    check_heldout: CheckHeldout | None = None,
    find_stop: FindStop | None = None,
) -> Policy:
    """Fine-tune a policy in place on (example, target) rows; return it.

    Writes ``metrics.jsonl``, ``budget.json`` and checkpoints to the workspace; whole checkpoints
    there are continued. ``check_heldout`` is called every ``heldout_every_steps``, or as
    ``validation`` says. Where ``find_stop`` finds something wrong with the rows so far, training
    ends there. Of several processes each computes its part of every batch, and the first writes.

    Raises:
        TrainingError: if there are no rows, or not as many in each epoch, if ``easy_first`` finds
            no difficulty, if the warm-up takes all steps, if an alarm ends it, if processes cannot
            share a batch or go on from what others left, or if memory does not suffice.
        ModelError: if no parameter trains, or the model is inside a PEFT model.
    """
    from datasets import Dataset
    from trl.trainer.sft_config import SFTConfig

    keep_freed_memory()
    schedule = lay_out_rows(
        rows, num_epochs=settings.epochs, seed=workspace.seed, easy_first=settings.easy_first
    )
    seed_everything(derive_seed(workspace.seed, "sft"))
    policy.model = prepare_trainable(policy.model, settings.trainable, processor=policy.processor)
    arguments = SFTConfig(
        **build_arguments(settings, workspace, dtype=policy.model.dtype),
        num_train_epochs=1,
        per_device_train_batch_size=divide_batch(settings.batch_size, setting="batch_size"),
        label_smoothing_factor=settings.label_smoothing,
        max_length=None,
        dataset_kwargs={"skip_prepare_dataset": True},
        train_sampling_strategy="sequential",
    )
    collate = RowCollator(policy, augmentation=settings.augmentation, seed=workspace.seed)

    def collate_places(places: Sequence[int]) -> dict[str, Any]:
        batch = collate([schedule[place % len(schedule)] for place in places])
        for row, place in enumerate(places):
            if place >= len(schedule):  # nothing is learned of what fills up the last batch
                batch["labels"][row] = IGNORED
        return batch

    num_places = count_places(len(schedule), batch_size=settings.batch_size)
    read = ReadAhead(collate_places, num_rows=num_places, num_processes=count_processes())

    def make(callbacks: list[Any], _: Path | None) -> Any:
        return make_sft_trainer(
            model=policy.model,
            args=arguments,
            train_dataset=Dataset.from_dict({"place": list(range(num_places))}),
            processing_class=policy.processor,
            data_collator=lambda items: read([item["place"] for item in items]),
            callbacks=callbacks,
        )

    trainer, looks = run_trainer(
        make,
        policy,
        settings,
        workspace,
        check_heldout=check_heldout,
        find_stop=find_stop,
        shown={"loss": "loss"},
        rename=lambda logs: {name: float(logs[name]) for name in _KEPT_METRICS if name in logs},
        num_epochs=settings.epochs,
    )
    taught = schedule[: trainer.state.global_step * trainer.get_total_train_batch_size(arguments)]
    if is_first_process():
        write_budget(
            workspace.folder,
            num_steps=trainer.state.global_step,
            num_samples=len(taught),
            num_tokens=sum(len(collate.encode_target(row)) for _, _, row in taught),
            **looks,
        )
        remove_checkpoints(workspace.folder)
    policy.model.eval()
    return policy


def make_control_settings(sft: SftSettings, grpo: GrpoSettings) -> SftSettings:
    """Return settings of SFT that goes on where GRPO does, at its rate and for as many passes.

    What trains, the rate, the epochs (all of them) and the choice on validation are GRPO's; all
    else is as in the warm-up ``sft``, without what a recipe adds to it.
    """
    values = sft.model_dump(include=set(SftSettings.model_fields))
    of_grpo = {
        "epochs": grpo.epochs,
        "learning_rate": grpo.learning_rate,
        "trainable": grpo.trainable.model_dump(),
        "validation": grpo.validation and grpo.validation.model_dump(),
        "heldout_every_steps": None if grpo.validation else sft.heldout_every_steps,
    }
    return SftSettings.model_validate({**values, **of_grpo})


def make_sft_trainer(**named: Any) -> Any:
    from transformers import PrinterCallback
    from trl.trainer.sft_trainer import SFTTrainer

    from groupwise.training.fast.support import keep_inputs_without_gradient

    class _Trainer(sharding.ShardedTraining, SFTTrainer):
        num_new_tokens = 0
        counted_from = 0.0

        def training_step(self, model: Any, inputs: Any, *rest: Any, **named: Any) -> Any:
            self.counted_from = self.counted_from or time.perf_counter()
            self.num_new_tokens += int(inputs["attention_mask"].sum())
            sharding.gather_head(model)
            return super().training_step(model, inputs, *rest, **named)

        def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
            if "loss" in logs:
                now = time.perf_counter()
                own = torch.tensor(self.num_new_tokens, device=self.accelerator.device)
                num_tokens: Any = self.accelerator.reduce(own, "sum")
                logs["tokens_per_s"] = int(num_tokens) / (now - self.counted_from)
                self.num_new_tokens, self.counted_from = 0, now
            super().log(logs, start_time)

        def _set_signature_columns_if_needed(self) -> None:
            self._signature_columns = ["place"]

    keep_inputs_without_gradient(named["model"], named["args"])
    with keep_adapter_dtype(named["model"]):
        trainer = _Trainer(**named)
    sharding.refuse_quantized(trainer)
    trainer.remove_callback(PrinterCallback)
    # A loss is a mean over the tokens of a step. Some models (Qwen2.5-VL) say that their own loss
    # cannot be told how many these are; TRL's can, and would be a mean of means without.
    trainer.model_accepts_loss_kwargs = True
    return trainer


def lay_out_rows(
    rows: RowsOfEpoch, *, num_epochs: int, seed: int, easy_first: bool | None = None
) -> list[tuple[int, int, Any]]:
    """Return (epoch, index, row) of every step in order; each epoch is shuffled by its seed."""
    schedule: list[tuple[int, int, Any]] = []
    sizes: set[int] = set()
    for epoch in range(num_epochs):
        items = [(epoch, index, row) for index, row in enumerate(rows(epoch))]
        sizes.add(len(items))
        random.Random(derive_seed(seed, "order", epoch)).shuffle(items)
        if easy_first and epoch == 0:
            ranks = rank_difficulties([row.example for _, _, row in items])
            items = [item for _, item in sorted(zip(ranks, items, strict=True), key=itemgetter(0))]
        schedule += items
    if sizes == {0}:
        raise TrainingError("there are no rows to train on", fix="check the splits")
    if len(sizes) > 1:
        raise TrainingError("epochs differ in their number of rows", got=sorted(sizes))
    return schedule


def rank_difficulties(examples: Sequence[Example]) -> list[int]:
    """Return 0 for ``easy``, 2 for ``hard``, else 1 (Bengio et al. 2009, Curriculum learning)."""
    ranks = [
        {"easy": 0, "hard": 2}.get(str(example.fields.get("difficulty")), 1) for example in examples
    ]
    if examples and set(ranks) == {1}:
        raise TrainingError(
            "easy_first: no row says that it is easy or hard",
            fix="give rows a field difficulty (easy, hard), or set easy_first to false",
        )
    return ranks


def count_places(num_rows: int, *, batch_size: int) -> int:
    """Return the places of a schedule: of several processes none goes without in the last batch."""
    if count_processes() == 1:
        return num_rows
    return -(-num_rows // batch_size) * batch_size


class RowCollator:
    """Turns scheduled rows into padded tensors; only target tokens carry a label."""

    def __init__(
        self, policy: Policy, *, augmentation: PictureAugmentation | None, seed: int
    ) -> None:
        self.policy, self.augmentation, self.seed = policy, augmentation, seed

    def __call__(self, scheduled: Sequence[tuple[int, int, SftRow]]) -> dict[str, torch.Tensor]:
        """Return tensors for (epoch, index, row) triples; shapes [batch, tokens]."""
        prompts = [self.policy.render_prompt(row.example) for _, _, row in scheduled]
        pictures = [[open_picture(one) for one in row.example.pictures] for _, _, row in scheduled]
        if self.augmentation is not None:
            for shown, (epoch, index, _) in zip(pictures, scheduled, strict=True):
                for number, picture in enumerate(shown):
                    seed = derive_seed(self.seed, epoch, index, number)
                    shown[number] = augment_picture(picture, self.augmentation, seed=seed)
        named = {"images": pictures} if any(pictures) else {}
        inputs = self.policy.processor(
            text=prompts, padding=True, padding_side="right", return_tensors="pt", **named
        )
        targets = [self.encode_target(row) for _, _, row in scheduled]
        padding_id = self.policy.tokenizer.pad_token_id
        return dict(inputs) | _append_targets(dict(inputs), targets, padding_id=padding_id)

    def encode_target(self, row: SftRow) -> torch.Tensor:
        tokenizer = self.policy.tokenizer
        ids = encode_words(tokenizer, row.target)
        return torch.tensor([*ids, tokenizer.eos_token_id] if row.is_finished else ids)


def _append_targets(
    inputs: dict[str, torch.Tensor], targets: Sequence[torch.Tensor], *, padding_id: Any
) -> dict[str, torch.Tensor]:
    """Put target ids behind right-padded prompts and label them, [batch, tokens]."""
    lengths = inputs["attention_mask"].sum(dim=1).tolist()

    def join(name: str, tails: Sequence[torch.Tensor], padding: int) -> torch.Tensor:
        heads = [row[:length] for row, length in zip(inputs[name], lengths, strict=True)]
        rows = [torch.cat(pair) for pair in zip(heads, tails, strict=True)]
        return pad_sequence(rows, batch_first=True, padding_value=padding)

    ones = [torch.ones_like(target) for target in targets]
    zeros = [torch.zeros_like(target) for target in targets]
    joined = {
        "input_ids": join("input_ids", targets, padding_id),
        "attention_mask": join("attention_mask", ones, 0),
        **{name: join(name, zeros, 0) for name in TOKEN_TYPES if name in inputs},
    }
    labels = torch.full_like(joined["input_ids"], IGNORED)
    for row, length, target in zip(labels, lengths, targets, strict=True):
        row[length : length + len(target)] = target
    return joined | {"labels": labels}


class ReadAhead:
    """Collates batches of consecutive places; the next is begun when one is asked for."""

    def __init__(
        self, collate: Callable[[Sequence[int]], Any], *, num_rows: int, num_processes: int = 1
    ) -> None:
        self.collate, self.num_rows, self.num_processes = collate, num_rows, num_processes
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="read-ahead")
        self._expected: tuple[list[int], Future[Any]] | None = None

    def __call__(self, places: Sequence[int]) -> Any:
        expected, self._expected = self._expected, None
        if expected is not None and expected[0] == list(places):
            batch = expected[1].result()
        else:
            batch = self._pool.submit(self.collate, places).result()
        start = places[-1] + 1 + (self.num_processes - 1) * len(places)
        coming = list(range(start, min(start + len(places), self.num_rows)))
        if coming:
            self._expected = coming, self._pool.submit(self.collate, coming)
        return batch
