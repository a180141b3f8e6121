"""What of a model can be shared: families whose passes the tests compare; others fall back."""

import re
from collections.abc import Mapping
from importlib.util import find_spec
from types import MethodType
from typing import Any

from peft.tuners.tuners_utils import BaseTunerLayer
from peft.utils.other import AuxiliaryTrainingWrapper
from torch import nn

from groupwise.training.fast.shared import find_text_model, find_text_name, list_block_types

_FULL = frozenset({"full_attention"})
_WINDOWS = _FULL | {"sliding_attention"}
_LINEAR = _FULL | {"linear_attention"}
# Types of blocks that were compared, by the type of the text model.
_TEXT: Mapping[str, frozenset[str]] = {
    "gemma3_text": _WINDOWS,
    "glm": _FULL,
    "glm4": _FULL,
    "gpt_oss": _WINDOWS,
    "llama": _FULL,
    "mistral": _WINDOWS,
    "qwen2": _FULL,
    "qwen2_5_vl_text": _FULL,
    "qwen2_vl_text": _FULL,
    "qwen3": _FULL,
    "qwen3_5_text": _LINEAR,
    "qwen3_moe": _FULL,
    "qwen3_vl_moe_text": _FULL,
    "qwen3_vl_text": _FULL,
}
# With attention written out their shared passes were further from plain ones than those are from
# each other, or than 1e-5.
_NOT_EAGER = frozenset({"qwen3_5_text", "qwen3_vl_moe_text"})
# Packages that Transformers takes instead of its own linear attention where they are installed.
_KERNELS = ("fla", "causal_conv1d")
_VISION = frozenset(
    {
        *("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5"),
        *("gemma3", "idefics3", "internvl", "smolvlm"),
        *("llava", "llava_next", "llava_onevision"),
    }
)
# Each token is changed by itself, and nothing is left to chance.
_ADAPTERS = "BOFT FOURIERFT HRA IA3 LN_TUNING LORA OFT TRAINABLE_TOKENS VERA"
_ATTENTION = ("sdpa", "eager", "flash_attention_2", "flash_attention_3")
_BLOCK = re.compile(r"(?:^|\.)layers\.(\d+)\.")


def keep_inputs_without_gradient(model: Any, arguments: Any) -> None:
    """Ignore that gradients of inputs are asked for: re-entrant checkpointing alone needs them."""
    if isinstance(model, str):
        return

    def ask(part: Any) -> None:
        options = getattr(arguments, "gradient_checkpointing_kwargs", None) or {}
        if options.get("use_reentrant", False):
            type(part).enable_input_require_grads(part)

    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    base.enable_input_require_grads = MethodType(ask, base)


def find_backbone(model: Any) -> Any:
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    return base.base_model


def find_obstacle(backbone: Any) -> str | None:
    text = find_text_model(backbone)
    if text is not backbone and backbone.config.model_type not in _VISION:
        return f"models of type {backbone.config.model_type} are not known to allow it"
    known = _TEXT.get(text.config.model_type)
    if known is None:
        return f"models of type {text.config.model_type} are not known to allow it"
    types = set(list_block_types(text.config))
    if types - known:
        return f"its layers are of type {min(types - known)}"
    attention = text.config._attn_implementation
    if attention == "eager" and text.config.model_type in _NOT_EAGER:
        return "with eager attention its passes were not close enough to plain ones"
    kernels = [*filter(find_spec, _KERNELS), *(["the hub's kernels"] if text.use_kernels else [])]
    if "linear_attention" in types and kernels:
        return f"its linear attention is computed by {kernels[0]}: no gradient was compared"
    if getattr(text.config, "use_bidirectional_attention", False):
        return "its tokens attend to later ones"
    if not type(backbone).__module__.startswith("transformers."):
        return f"its class {type(backbone).__name__} is not of Transformers"
    if len({parameter.device for parameter in backbone.parameters()}) > 1:
        return "it is spread over devices"
    if attention not in _ATTENTION:
        return f"its attention implementation is {attention}"
    # Source: ``dynamic_rope_update`` of Transformers.
    found = [getattr(part, "rope_type", None) for part in text.modules()]
    kinds = [kind for one in found for kind in (one.values() if isinstance(one, dict) else [one])]
    rotary = next((kind for kind in kinds if kind and re.search("dynamic|longrope", kind)), None)
    if rotary is not None:
        return f"its rotary embedding ({rotary}) depends on the length of whole rows"
    if has_dropout(backbone):
        return "dropout is on, so that no two passes agree"
    return None


def find_adapter_obstacle(model: Any) -> str | None:
    for config in getattr(model, "peft_config", {}).values():
        if config.peft_type.value not in _ADAPTERS.split():
            return f"adapters of type {config.peft_type.value} are not known to allow it"
    for part in model.modules():
        for variant in getattr(part, "lora_variant", {}).values():
            if not type(variant).__name__.startswith("Dora"):
                return f"LoRA as {type(variant).__name__} is not known to allow it"
    return None


def has_dropout(model: nn.Module) -> bool:
    """Whether some part of the model, or an adapter, drops activations while it trains."""
    for part in model.modules():
        kept = vars(part)
        rates = [kept.get("p") if "Dropout" in type(part).__name__ else None]
        for name, value in kept.items():
            if "drop" in name:
                rates += value.values() if isinstance(value, Mapping) else [value]
        if any(isinstance(rate, int | float) and rate > 0 for rate in rates):
            return True
    return False


def find_first_trained(backbone: nn.Module, num_blocks: int) -> int:
    """Return the first block with something to train; 0 if embeddings or a vision tower do."""
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
    return any(_is_vision(backbone, name) for name in _list_adapted(backbone))


def _list_adapted(backbone: nn.Module) -> list[str]:
    kinds = BaseTunerLayer | AuxiliaryTrainingWrapper
    inside = tuple(f"{n}." for n, part in backbone.named_modules() if isinstance(part, kinds))
    named = backbone.named_parameters()
    return [name for name, p in named if p.requires_grad or name.startswith(inside)]


def _is_vision(backbone: nn.Module, name: str) -> bool:
    text = find_text_name(backbone)
    return text is not None and not name.startswith(f"{text}.")
