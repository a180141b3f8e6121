"""What trains and what is frozen: LoRA on language blocks, freezing, and the table of it."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from groupwise.core import Config, ConfigError, ModelError

_BLOCK = re.compile(r"(?:^|\.)layers\.(\d+)\.")
_VISION = re.compile(r"(?:^|\.)(?:visual|vision_tower|vision_model)\.")
_ALIGNER = re.compile(r"(?:^|\.)(?:merger|multi_modal_projector|aligner|deepstack_merger_list)\.")


class LoraSettings(Config):
    """A low-rank adapter on the language blocks.

    Source: Hu et al. 2021 (2106.09685). Dropout is fixed at 0: with dropout the policy that
    samples and the policy that is trained are different ones, and the ratio is not 1 at the
    first step.
    """

    rank: int = 8
    alpha: int = 16
    last_blocks: int | None = None
    modules: tuple[str, ...] = (
        "q_proj",
        "k_proj",
        "v_proj",
        "o_proj",
        "gate_proj",
        "up_proj",
        "down_proj",
    )


class TrainableSettings(Config):
    """Which weights are trained: everything (``full``) or an adapter (``lora``)."""

    method: Literal["full", "lora"] = "lora"
    lora: LoraSettings = LoraSettings()
    freeze_vision: bool = True
    freeze_aligner: bool = True


@dataclass(frozen=True)
class TrainableRow:
    """Number of parameters of one part of a model, and how many of them train."""

    part: str
    num_trainable: int
    num_frozen: int


def prepare_trainable(model: Any, settings: TrainableSettings) -> Any:
    """Freeze and wrap a model in place as configured; returns the model to train.

    Raises:
        ConfigError: if more blocks are asked for than the model has.
        ModelError: if no parameter is left to train.
    """
    if settings.method == "lora":
        model = _add_lora(model, settings.lora)
    else:
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(not _is_frozen(name, settings))
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ModelError("no parameter is trainable", fix="check method, freeze_* and lora.modules")
    return model


def count_blocks(model: Any) -> int:
    """Return the number of language blocks (the vision tower's do not count)."""
    names = (name for name, _ in model.named_parameters() if not _VISION.search(name))
    return 1 + max((int(m.group(1)) for name in names if (m := _BLOCK.search(name))), default=-1)


def tabulate_trainable(model: Any) -> list[TrainableRow]:
    """Count trainable and frozen parameters by part: vision, aligner, each language block, rest."""
    counts: dict[str, list[int]] = {}
    for name, parameter in model.named_parameters():
        row = counts.setdefault(_name_part(name), [0, 0])
        row[0 if parameter.requires_grad else 1] += parameter.numel()
    return [TrainableRow(part, *counts[part]) for part in sorted(counts, key=_sort_key)]


def format_trainable(rows: Iterable[TrainableRow]) -> str:
    """Return the table as text, with a total line."""
    rows = list(rows)
    total = TrainableRow(
        "total", sum(r.num_trainable for r in rows), sum(r.num_frozen for r in rows)
    )
    lines = [f"{'part':<24}{'trainable':>14}{'frozen':>16}"]
    lines += [f"{r.part:<24}{r.num_trainable:>14,}{r.num_frozen:>16,}" for r in [*rows, total]]
    return "\n".join(lines)


def _add_lora(model: Any, settings: LoraSettings) -> Any:
    from peft import LoraConfig, get_peft_model

    num_blocks = count_blocks(model)
    last = settings.last_blocks or num_blocks
    if last > num_blocks:
        raise ConfigError("lora.last_blocks is too large", got=last, expected=f"<= {num_blocks}")
    kept = "|".join(str(index) for index in range(num_blocks - last, num_blocks))
    modules = "|".join(re.escape(module) for module in settings.modules)
    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=0.0,
        target_modules=rf"^(?!.*visual).*layers\.(?:{kept})\..*(?:{modules})$",
        task_type="CAUSAL_LM",
    )
    return get_peft_model(model, config)


def _is_frozen(name: str, settings: TrainableSettings) -> bool:
    if _ALIGNER.search(name):
        return settings.freeze_aligner
    return bool(_VISION.search(name)) and settings.freeze_vision


def _name_part(name: str) -> str:
    if _ALIGNER.search(name):
        return "aligner"
    if _VISION.search(name):
        return "vision"
    block = _BLOCK.search(name)
    if block:
        return f"language block {block.group(1)}"
    return "embeddings and head"


def _sort_key(part: str) -> tuple[int, int]:
    order = ("vision", "aligner", "embeddings and head")
    return (order.index(part), 0) if part in order else (len(order), int(part.rsplit(" ", 1)[1]))
