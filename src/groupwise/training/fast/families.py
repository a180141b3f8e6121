"""Which families of models share prompts: those whose shared passes were compared with plain ones.

A family is an entry here and one in the tests; what nobody has tried falls back.
"""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from groupwise.training.fast.shared import find_text_model, list_block_types

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


def find_family_obstacle(backbone: Any) -> str | None:
    """Return why prompts cannot be shared by a model of this family, or None if they can."""
    text = find_text_model(backbone)
    if text is not backbone and backbone.config.model_type not in _VISION:
        return f"models of type {backbone.config.model_type} are not known to allow it"
    known = _TEXT.get(text.config.model_type)
    if known is None:
        return f"models of type {text.config.model_type} are not known to allow it"
    types = set(list_block_types(text.config))
    if types - known:
        return f"its layers are of type {min(types - known)}"
    if text.config._attn_implementation == "eager" and text.config.model_type in _NOT_EAGER:
        return "with eager attention its passes were not close enough to plain ones"
    kernels = [*filter(find_spec, _KERNELS), *(["the hub's kernels"] if text.use_kernels else [])]
    if "linear_attention" in types and kernels:
        return f"its linear attention is computed by {kernels[0]}: no gradient was compared"
    if getattr(text.config, "use_bidirectional_attention", False):
        return "its tokens attend to later ones"
    return None
