"""What of a model can be shared, and why not."""

import re
from typing import Any

from torch import nn

from groupwise.training.fast.scoring import Sharing
from groupwise.training.fast.shared import find_text_model
from groupwise.training.settings import SpeedSettings

_KNOWN = ("llama", "qwen2", "qwen3", "qwen2_5_vl", "qwen3_vl")
_ATTENTION = ("sdpa", "eager", "flash_attention_2", "flash_attention_3")
_BLOCK = re.compile(r"(?:^|\.)layers\.(\d+)\.")
_VISION = re.compile(r"(?:^|\.)visual\.")


def find_backbone(model: Any) -> Any:
    """Return the part of a model, with or without an adapter, below its output head."""
    base = model.get_base_model() if hasattr(model, "peft_config") else model
    return base.base_model


def find_obstacle(backbone: Any) -> str | None:
    """Return why prompts cannot be shared by this model, or None if they can."""
    if backbone.config.model_type not in _KNOWN:
        return f"models of type {backbone.config.model_type} are not known to allow it"
    text = find_text_model(backbone)
    layer_types = set(getattr(text.config, "layer_types", None) or ()) - {"full_attention"}
    if layer_types:
        return f"its layers are of type {sorted(layer_types)[0]}"
    attention = text.config._attn_implementation
    if attention not in _ATTENTION:
        return f"its attention implementation is {attention}"
    if has_dropout(backbone):
        return "dropout is on, so that no two passes agree"
    return None


def has_dropout(model: nn.Module) -> bool:
    """Whether some part of the model drops activations while it trains."""
    layers = any(isinstance(part, nn.Dropout) and part.p > 0 for part in model.modules())
    return layers or any(getattr(p, "attention_dropout", 0) for p in model.modules())


def find_first_trained(backbone: nn.Module, num_blocks: int) -> int:
    """Return the first block in which something trains or an adapter sits.

    It is 0 if embeddings or the vision tower do, too: then nothing below is the same for every
    policy.
    """
    found = [num_blocks]
    for name, parameter in backbone.named_parameters():
        if not (parameter.requires_grad or "lora_" in name) or _is_above_blocks(name):
            continue
        block = None if _VISION.search(name) else _BLOCK.search(name)
        found.append(int(block.group(1)) if block else 0)
    return min(found)


def trains_vision(backbone: nn.Module) -> bool:
    """Whether some weight of the vision tower or its aligner trains."""
    named = backbone.named_parameters()
    return any(p.requires_grad or "lora_" in n for n, p in named if _VISION.search(n))


def describe_sharing(backbone: Any, speed: SpeedSettings) -> Sharing:
    """Return what a round of this model keeps for later passes."""
    num_blocks = len(find_text_model(backbone).layers)
    first = find_first_trained(backbone, num_blocks)
    return Sharing(
        first_trained=first,
        keeps_trunk=speed.trunk_cache and 0 < first < num_blocks,
        keeps_features=speed.vision_once and not trains_vision(backbone),
    )


def _is_above_blocks(name: str) -> bool:
    is_norm = name.endswith(("norm.weight", "norm.bias"))
    return is_norm and not _VISION.search(name) and not _BLOCK.search(name)
