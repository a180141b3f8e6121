"""What of a model can be shared, and why not."""

import re
from collections.abc import Mapping
from types import MethodType
from typing import Any

from peft.tuners.tuners_utils import BaseTunerLayer
from peft.utils.other import AuxiliaryTrainingWrapper
from torch import nn

from groupwise.training.fast.families import find_family_obstacle
from groupwise.training.fast.scoring import Sharing
from groupwise.training.fast.shared import find_text_model, find_text_name
from groupwise.training.settings import SpeedSettings


def keep_inputs_without_gradient(model: Any, arguments: Any) -> None:
    """Let the trainer ask for gradients of the inputs of a model in vain.

    It does so for re-entrant checkpointing, which alone needs it; every frozen block below the
    first adapter would be recomputed and differentiated for nothing, and each round of sampling
    would add hooks.

    Args:
        model: with an adapter, before one is added, or without; a name is left alone.
        arguments: of the trainer, which may choose re-entrant checkpointing later (ZeRO-3); None:
            TRL's own.
    """
    if isinstance(model, str):
        return

    def ask(part: Any) -> None:
        options = getattr(arguments, "gradient_checkpointing_kwargs", None) or {}
        if options.get("use_reentrant", False):
            type(part).enable_input_require_grads(part)

    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    base.enable_input_require_grads = MethodType(ask, base)


# Each token is changed by itself, and nothing is left to chance.
_ADAPTERS = (
    "BOFT",
    "FOURIERFT",
    "HRA",
    "IA3",
    "LN_TUNING",
    "LORA",
    "OFT",
    "TRAINABLE_TOKENS",
    "VERA",
)
_ATTENTION = ("sdpa", "eager", "flash_attention_2", "flash_attention_3")
_BLOCK = re.compile(r"(?:^|\.)layers\.(\d+)\.")


def find_backbone(model: Any) -> Any:
    """Return the part of a model, with or without an adapter, below its output head."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    return base.base_model


def find_obstacle(backbone: Any) -> str | None:
    """Return why prompts cannot be shared by this model, or None if they can."""
    family = find_family_obstacle(backbone)
    if family is not None:
        return family
    if not type(backbone).__module__.startswith("transformers."):
        return f"its class {type(backbone).__name__} is not of Transformers"
    if len({parameter.device for parameter in backbone.parameters()}) > 1:
        return "it is spread over devices"
    text = find_text_model(backbone)
    attention = text.config._attn_implementation
    if attention not in _ATTENTION:
        return f"its attention implementation is {attention}"
    rotary = find_rotary_by_length(text)
    if rotary is not None:
        return f"its rotary embedding ({rotary}) depends on the length of whole rows"
    if has_dropout(backbone):
        return "dropout is on, so that no two passes agree"
    return None


def find_adapter_obstacle(model: Any) -> str | None:
    """Return why prompts cannot be shared with this model's adapters, or None if they can."""
    for config in getattr(model, "peft_config", {}).values():
        if config.peft_type not in _ADAPTERS:
            return f"adapters of type {config.peft_type.value} are not known to allow it"
    for part in model.modules():
        for variant in getattr(part, "lora_variant", {}).values():
            if not type(variant).__name__.startswith("Dora"):
                return f"LoRA as {type(variant).__name__} is not known to allow it"
    return None


def find_rotary_by_length(model: nn.Module) -> str | None:
    """Return the kind of a rotary embedding whose frequencies depend on the length, if any.

    Source: ``dynamic_rope_update`` of Transformers.
    """
    found = [getattr(part, "rope_type", None) for part in model.modules()]
    kinds = [kind for one in found for kind in (one.values() if isinstance(one, dict) else [one])]
    return next((kind for kind in kinds if kind and re.search("dynamic|longrope", kind)), None)


def has_dropout(model: nn.Module) -> bool:
    """Whether some part of the model drops activations, or an adapter, while it trains."""
    return any(map(_drops, model.modules()))


def _drops(part: nn.Module) -> bool:
    """Read rates off a layer for dropout, and off whatever has some, of each adapter or its own."""
    kept = vars(part)
    rates = [kept.get("p") if "Dropout" in type(part).__name__ else None]
    for name, value in kept.items():
        if "drop" in name:
            rates += value.values() if isinstance(value, Mapping) else [value]
    return any(isinstance(rate, int | float) and rate > 0 for rate in rates)


def find_first_trained(backbone: nn.Module, num_blocks: int) -> int:
    """Return the first block in which something trains or an adapter sits.

    It is 0 if embeddings or the vision tower do, too: then nothing below is the same for every
    policy.
    """
    found = [num_blocks]
    for name in _list_adapted(backbone):
        is_vision, block = _is_vision(backbone, name), _BLOCK.search(name)
        if is_vision or block is None:
            is_above = not is_vision and name.endswith(("norm.weight", "norm.bias"))
            found.append(num_blocks if is_above else 0)
        else:
            found.append(int(block.group(1)))
    return min(found)


def trains_vision(backbone: nn.Module) -> bool:
    """Whether some weight of the vision tower or its aligner trains."""
    return any(_is_vision(backbone, name) for name in _list_adapted(backbone))


def describe_sharing(backbone: Any, speed: SpeedSettings) -> Sharing:
    """Return what a round of this model keeps for later passes."""
    num_blocks = len(find_text_model(backbone).layers)
    first = find_first_trained(backbone, num_blocks)
    return Sharing(
        first_trained=first,
        keeps_trunk=speed.trunk_cache and 0 < first < num_blocks,
        keeps_features=speed.vision_once and not trains_vision(backbone),
    )


def _list_adapted(backbone: nn.Module) -> list[str]:
    """Return the names of parameters that train or belong to a part with an adapter."""
    kinds = BaseTunerLayer | AuxiliaryTrainingWrapper
    inside = tuple(f"{n}." for n, part in backbone.named_modules() if isinstance(part, kinds))
    named = backbone.named_parameters()
    return [name for name, p in named if p.requires_grad or name.startswith(inside)]


def _is_vision(backbone: nn.Module, name: str) -> bool:
    text = find_text_name(backbone)
    return text is not None and not name.startswith(f"{text}.")
