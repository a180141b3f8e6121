"""What a device holds in a training step, from a model's configuration alone."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Self

import torch
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText
from trl.trainer.utils import add_fused_lm_head, disable_dropout_in_model

from groupwise.core import Example, open_picture
from groupwise.models import (
    ModelSettings,
    Quantization,
    empty_into_bits,
    find_local_config,
    list_held,
    open_processor,
    prepare_trainable,
    project_patches_fast,
    render_prompt,
    takes_pictures,
)
from groupwise.training.fast.sampling import collate_prompts, collect_pictures
from groupwise.training.fast.scoring import PromptRows
from groupwise.training.fast.support import keep_inputs_without_gradient
from groupwise.training.memory.rehearsal import Rehearsal, like_cuda
from groupwise.training.memory.steps import GrpoStep, SftStep
from groupwise.training.place import Place
from groupwise.training.settings import GrpoSettings, SftSettings, TrainerSettings


@dataclass(frozen=True)
class Base:
    """A model that is not loaded.

    Attributes:
        config: of Transformers.
        dtype: of its weights.
        quantization: what its linear layers are held in; None: in ``dtype``.
        processor: or tokenizer; None: it is not at hand, and neither are pictures.
    """

    config: Any
    dtype: torch.dtype
    processor: Any = None
    quantization: Quantization | None = None

    @classmethod
    def open(cls, model: ModelSettings) -> Self:
        """Return what is known of a model whose configuration is on this machine.

        Raises:
            ModelError: if its processor cannot be loaded.
        """
        config: Any = find_local_config(model.base)
        dtype = config.dtype if model.dtype == "auto" else getattr(torch, model.dtype)
        processor = open_processor(model.base, max_pixels=model.max_pixels)
        return cls(config, dtype or torch.float32, processor, model.quantization)

    def encode(self, example: Example | None, *, num_tokens: int) -> PromptRows:
        """Return a prompt with the pictures of an example; without, of so many tokens."""
        if example is None or not example.pictures or not takes_pictures(self.config):
            ids = torch.zeros(1, num_tokens, dtype=torch.long)
            return PromptRows(ids, torch.ones_like(ids))
        images = [open_picture(picture) for picture in example.pictures]
        text = render_prompt(self.processor, example)
        fields = dict(self.processor(text=[text], images=[images]))
        ids = [[int(token) for token in fields.pop("input_ids")[0]]]
        device = torch.device("cpu")
        pictures = collect_pictures(
            ids,
            fields,
            num_images=[len(images)],
            picture_id=getattr(self.config, "image_token_id", None),
            device=device,
        )
        return collate_prompts(ids, fields, pictures=pictures, padding_id=0, device=device)


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes of tensors on one device.

    Attributes:
        weights: of the policy, and of the reference where that is another model.
        optimizer: its states, which are there from the first update on.
        phases: what each holds beside these at most, by its name: ``sample``, ``check`` (of the
            first round), ``compare`` (a shared pass of a new shape with plain ones), ``update``.
    """

    weights: int
    optimizer: int
    phases: Mapping[str, int]

    @property
    def total(self) -> int:
        """The most that is held at once."""
        return max(map(self.sum_phase, self.phases))

    def describe(self) -> str:
        """Return a line for a person."""
        parts = {"weights": self.weights, "optimizer": self.optimizer}
        parts |= {_TOLD[name]: held for name, held in self.phases.items()}
        told = ", ".join(f"{name} {size >> 20:,}" for name, size in parts.items())
        return f"{self.total >> 20:,} MiB at most ({told})"

    def sum_phase(self, phase: str) -> int:
        """Return the most that is held in a phase."""
        return self.weights + self.phases[phase] + (0 if phase == "check" else self.optimizer)


_TOLD = {
    "sample": "sampling",
    "check": "first check",
    "compare": "comparing passes",
    "update": "an update",
}


def estimate_memory(
    base: Base, prompt: PromptRows, settings: TrainerSettings, *, num_targets: int, place: Place
) -> MemoryEstimate:
    """Estimate a step of SFT, or a round of GRPO whose completions have their full length.

    Args:
        base: what is trained.
        prompt: one, which all are as long as.
        settings: of the training.
        num_targets: tokens of each answer of SFT.
        place: where it is trained.

    Raises:
        RuntimeError: if the model cannot run without numbers.
        ValueError: if Transformers has no such model, or no estimate of its kind was held against
            a training.
    """
    _check_family(base.config.get_text_config(), place)
    if settings.activation_offloading:
        raise ValueError("what activation_offloading leaves on a device was not measured")
    if isinstance(settings, GrpoSettings):
        return _estimate_grpo(base, prompt, settings, place)
    assert isinstance(settings, SftSettings)
    prompts = _repeat(prompt, settings.batch_size // place.num_processes)
    stage = _Stage(base, settings, place, outputs=("log_probs", "entropy", "is_top1"))
    stage.begin_passes()
    stage.rehearse_update(SftStep(stage.model, prompts, settings, num_targets=num_targets).update)
    return stage.sum_up()


def _check_family(text: Any, place: Place) -> None:
    if any(getattr(text, name, None) for name in ("num_experts", "num_local_experts")):
        raise ValueError("no training of experts was held against an estimate")
    if place.device == "cuda" and "linear_attention" in (getattr(text, "layer_types", None) or ()):
        raise ValueError("what linear attention holds on a GPU depends on its kernels")


def _estimate_grpo(
    base: Base, prompt: PromptRows, settings: GrpoSettings, place: Place
) -> MemoryEstimate:
    num_prompts = settings.prompts_per_step // place.num_processes
    num_parts = settings.steps_per_generation or settings.gradient_accumulation
    prompts = _repeat(prompt, num_prompts * num_parts)
    stage = _Stage(base, settings, place, outputs=("log_probs", "entropy"))
    step = GrpoStep(stage.model, prompts, settings, num_rows=num_prompts * settings.group_size)
    if settings.vllm is None:
        stage.rehearse("sample", step.sample)
    stage.begin_passes()
    stage.rehearse("check", step.check)
    if step.shares:
        stage.rehearse("compare", step.compare)
    stage.rehearse_update(step.update)
    return stage.sum_up(has_reference=settings.beta > 0 and settings.trainable.method == "full")


class _Stage:
    """A model without numbers, and what phases of a step hold beside its weights.

    Args:
        base: of which it is made.
        settings: of the training.
        place: where it is done.
        outputs: what TRL's head computes.
    """

    def __init__(
        self, base: Base, settings: TrainerSettings, place: Place, *, outputs: tuple[str, ...]
    ) -> None:
        has_vision = takes_pictures(base.config)
        auto = AutoModelForImageTextToText if has_vision else AutoModelForCausalLM
        with torch.device("meta"):
            model = auto.from_config(base.config, dtype=base.dtype)
            project_patches_fast(model)
            if base.quantization is not None:
                dtype = str(base.dtype).removeprefix("torch.")
                empty_into_bits(model, base.quantization, dtype=dtype)
            model = prepare_trainable(model, settings.trainable, processor=base.processor)
        self._rehearsal = Rehearsal()
        self._rehearsal.fill(model)
        keep_inputs_without_gradient(model, None)
        bare = model.get_base_model() if hasattr(model, "get_base_model") else model
        add_fused_lm_head(bare, outputs=outputs)
        disable_dropout_in_model(model)
        self.model = model.train()
        self._settings, self._place, self._dtype = settings, place, base.dtype
        self._held = self._rehearsal.hold(list_held(model))
        self._trained = [p for p in model.parameters() if p.requires_grad]
        self._phases: dict[str, int] = {}
        self._parts: list[torch.Tensor] = []
        if place.is_spread:
            for parameter in self._trained:
                parameter.register_post_accumulate_grad_hook(self._keep_part)

    def begin_passes(self) -> None:
        """Let later phases compute as training does: sampling checkpoints and casts nothing."""
        if self._settings.gradient_checkpointing:
            self.model.gradient_checkpointing_enable({"use_reentrant": False})

    def rehearse(self, name: str, phase: Callable[[], None]) -> None:
        """Go through a phase."""
        rehearsal, is_cast = self._rehearsal, name != "sample" and self._dtype != torch.float32
        with (
            like_cuda() if self._place.device == "cuda" else nullcontext(),
            rehearsal,
            torch.autocast("cpu", self._dtype, enabled=is_cast),
        ):
            rehearsal.peak = rehearsal.now
            phase()
        self._phases[name] = rehearsal.peak - self._held

    def rehearse_update(self, update: Callable[[], None]) -> None:
        """Go through an update, and once more where its gradients are added to others."""
        for _ in range(min(2, self._settings.gradient_accumulation)):
            self.rehearse("update", update)

    def sum_up(self, *, has_reference: bool = False) -> MemoryEstimate:
        """Return what was found, and what several processes hold beside it."""
        num_models, num = 1 + has_reference, self._place.num_processes
        trained = sum(parameter.nbytes for parameter in self._trained)
        if not self._place.is_spread:
            # DDP has a copy of all gradients, which it sends.
            more = trained if num > 1 else 0
            phases = {name: held + more for name, held in self._phases.items()}
            return MemoryEstimate(self._held * num_models, 2 * trained, phases)
        kept = sum(self._count_kept(parameter) for parameter in self._trained)
        gathered = {name: self._held for name in self._phases} | {"update": self._count_gathered()}
        return MemoryEstimate(
            (self._held - trained + kept) * num_models // num,
            2 * kept // num,
            {name: held + gathered[name] for name, held in self._phases.items()},
        )

    def _keep_part(self, parameter: torch.Tensor) -> None:
        size = self._count_kept(parameter) // self._place.num_processes
        parameter.grad = None
        self._parts.append(torch.empty(size, dtype=torch.uint8))

    def _count_kept(self, parameter: torch.Tensor) -> int:
        """Return the bytes of a trained weight: Accelerate keeps them in float32."""
        return 4 * parameter.numel()

    def _count_gathered(self) -> int:
        """Return the bytes that an update gathers: what is in no block, a block, and the next."""
        names = set(self.model._no_split_modules or ())
        sizes = [
            sum(parameter.nbytes for parameter in module.parameters())
            for module in self.model.modules()
            if type(module).__name__ in names
        ]
        return self._held - sum(sizes) + 2 * max(sizes)


def _repeat(prompt: PromptRows, num_prompts: int) -> PromptRows:
    """Return copies of a prompt; one of several has padding, as in most batches."""
    prompts = prompt.take(torch.zeros(num_prompts, dtype=torch.long))
    if num_prompts > 1:
        prompts.mask[0, 0] = 0
    return prompts
