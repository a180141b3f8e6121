"""Our GRPOTrainer: the fast one, with the on-policy check, token rates and a rising temperature."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CellType
from typing import Any

from accelerate.utils import gather_object

from groupwise.core import Example, TrainingError, derive_seed, open_picture, write_json
from groupwise.models.policy import Policy, project_patches_fast
from groupwise.models.prompts import build_messages
from groupwise.models.quantization import keep_adapter_dtype
from groupwise.models.trainable import list_trainable, restore_trainable
from groupwise.training.on_policy import check_on_policy, join_results
from groupwise.training.settings import GrpoSettings
from groupwise.training.sharding import refuse_quantized


def make_prompt_rows(
    examples: Sequence[Example], layout: Sequence[tuple[int, int]], *, seed: int
) -> Any:
    """Return a Dataset of prompts in order; what is sampled follows from seed, place and epoch."""
    from datasets import Dataset

    has_pictures = any(example.pictures for example in examples)

    def read(batch: dict[str, list[int]]) -> dict[str, list[Any]]:
        places = batch["place"]
        prompts = [build_messages(examples[place]) for place in places]
        columns: dict[str, list[Any]] = {**batch, "prompt": prompts}
        if has_pictures:
            opened = {
                place: [open_picture(picture) for picture in examples[place].pictures]
                for place in set(places)
            }
            columns["images"] = [opened[place] for place in places]
        return columns

    columns = {
        "place": [place for _, place in layout],
        "sampling_seed": [derive_seed(seed, "completions", place, n) for n, place in layout],
    }
    return Dataset.from_dict(columns).with_transform(read)


def make_grpo_trainer(
    policy: Policy, examples: Sequence[Example], *, settings: GrpoSettings, seed: int, **named: Any
) -> Any:
    """Return a FastGRPOTrainer for ``policy`` whose first batch goes through the on-policy check.

    Only what trains in ``policy`` now will train: switching to the reference adapter and back would
    let other weights train, too.
    """
    from transformers import PrinterCallback

    from groupwise.training.fast.refill import Candidates, RefillingTrainer
    from groupwise.training.fast.trainer import FastGRPOTrainer
    from groupwise.training.fast.vllm import check_sampler, prepare_vllm

    trainable = list_trainable(policy.model)
    base: Any = FastGRPOTrainer
    if settings.refill is not None:

        def read(places: Sequence[int], step: int) -> list[Any]:
            # No epoch has this number: what is sampled is sampled nowhere else.
            layout = [(settings.epochs + step, place) for place in places]
            return list(make_prompt_rows(examples, layout, seed=seed))

        base = RefillingTrainer
        named["candidates"] = Candidates(read, len(examples), settings.refill.max_tries, seed)

    class _Trainer(base):
        def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
            step = self.state.global_step
            set_temperature(self, find_temperature(settings, step=step))
            started = time.perf_counter()
            batch = super()._generate_and_score_completions(inputs)
            duration_s = time.perf_counter() - started
            restore_trainable(policy.model, trainable)
            check_sampler(self, batch, settings.vllm)
            num_tokens = int(self.accelerator.reduce(batch["completion_mask"].sum(), "sum"))
            self._metrics["train"]["tokens_per_s"].append(num_tokens / duration_s)
            if settings.temperature_warmup is not None:
                self._metrics["train"]["temperature"].append(self.temperature)
            if step == 0 and self._step == 0:
                asked = [examples[row["place"]] for row in inputs]
                own = check_on_policy(self, policy, asked, batch)
                result = join_results(gather_object([own]))
                if self.accelerator.is_main_process:
                    write_json(Path(self.args.output_dir) / "on_policy.json", vars(result))
            return batch

    with prepare_vllm(settings.vllm, policy), keep_adapter_dtype(policy.model):
        trainer = _Trainer(speed=settings.speed, **named)
    refuse_quantized(trainer)
    if trainer.ref_model is not None:
        project_patches_fast(trainer.ref_model)
    trainer.remove_callback(PrinterCallback)
    # TRL copies to the reference what is inside of ``default``; vectors of virtual tokens are
    # called so themselves.
    for name, parameter in policy.model.named_parameters():
        if name.endswith(".default") and "ref" in policy.model.peft_config:
            copy = policy.model.get_parameter(name.removesuffix("default") + "ref")
            copy.data.copy_(parameter.data)
    restore_trainable(policy.model, trainable)
    return trainer


def find_temperature(settings: GrpoSettings, *, step: int) -> float:
    rising = settings.temperature_warmup
    if rising is None:
        return settings.temperature
    return rising.start + (settings.temperature - rising.start) * min(1.0, step / rising.steps)


def set_temperature(trainer: Any, value: float) -> None:
    if value == trainer.temperature:
        return
    trainer.temperature = value
    for sampler in ("generation_config", "vllm_generation"):
        if hasattr(trainer, sampler):
            getattr(trainer, sampler).temperature = value
    for model in (trainer.model, trainer.ref_model):
        if model is not None:
            _find_cell(trainer.accelerator.unwrap_model(model)).cell_contents = value


def _find_cell(model: Any) -> CellType:
    """Return where TRL's fused head, a closure, keeps the temperature it was made with."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    for function in _unwrap(base.forward):
        names = function.__code__.co_freevars
        if function.__name__ == "_fused_forward" or "temperature" in names:
            return function.__closure__[names.index("temperature")]
    raise TrainingError(
        "this version of TRL does not let the temperature change while it trains",
        fix="leave grpo.temperature_warmup out, or install the pinned version of TRL",
    )


def _unwrap(function: Any) -> Iterator[Any]:
    """Return a function and those that it closes over, the outermost first."""
    plain = getattr(function, "__func__", function)
    if not hasattr(plain, "__code__"):
        return
    yield plain
    for cell in plain.__closure__ or ():
        if callable(cell.cell_contents):
            yield from _unwrap(cell.cell_contents)
