"""A policy's weights as vLLM loads them: adapters are merged into copies, one weight at a time.

TRL merges an adapter into the base weights and takes it out again at every sync. In bfloat16 both
round, so that the base weights, and with them policy and reference, are other ones after each
round. Here nothing of the policy is written to.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from peft.tuners.lora.layer import Embedding, Linear
from peft.tuners.tuners_utils import BaseTunerLayer
from peft.utils.other import AuxiliaryTrainingWrapper, ModulesToSaveWrapper

from groupwise.core import TrainingError

_BELOW = ".base_layer."
_ORIGINAL = ".original_module."
_WRAPPED = re.compile(r"\.(?:base_layer|original_module|modules_to_save\.[^.]+)\.")


def send_merged(generation: Any, model: Any) -> None:
    """Let TRL's VLLMGeneration send what ``iter_merged`` yields, to a server or a colocated one.

    Args:
        generation: of a trainer.
        model: its policy, a PEFT model.

    Raises:
        TrainingError: if an adapter cannot be merged.
    """
    obstacle = _find_obstacle(model)
    if obstacle is not None:
        raise TrainingError(
            f"vLLM cannot sample from this policy: {obstacle}",
            fix="leave grpo.vllm out, or train plain LoRA on linear layers",
        )
    generation._iter_named_params = partial(iter_merged, model)


@torch.no_grad()
def iter_merged(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield every weight under its name in the model without adapters, tied ones once.

    Where adapters are active it is W + Σ scale · B · A, summed up in float32 and rounded to the
    dtype of W once; other values are the policy's own tensors. No two merged weights are in
    memory at a time.

    Args:
        model: a PEFT model whose adapters are LoRA.
    """
    modules = dict(model.named_modules())
    unused = tuple(
        place
        for name, part in modules.items()
        if isinstance(part, ModulesToSaveWrapper)
        for place in _list_unused(name, part)
    )
    for name, parameter in model.named_parameters():
        if model.prefix in name or name.startswith(unused):
            continue
        owner, _, kind = name.rpartition(_BELOW)
        value = _merge(modules[owner], kind, parameter.data) if owner else parameter.data
        yield _WRAPPED.sub(".", name).removeprefix("base_model.model."), value


def _list_unused(name: str, wrapper: ModulesToSaveWrapper) -> Iterator[str]:
    """Yield where a module that is saved whole keeps what it does not compute with."""
    used = "" if wrapper.disable_adapters else next(iter(wrapper.active_adapters), "")
    if used in wrapper.modules_to_save:
        yield f"{name}{_ORIGINAL}"
    for adapter in wrapper.modules_to_save:
        if adapter != used:
            yield f"{name}.modules_to_save.{adapter}."


def _merge(layer: Any, kind: str, value: torch.Tensor) -> torch.Tensor:
    """Return ``weight`` or ``bias`` of a layer with its active adapters."""
    is_off = layer.disable_adapters or layer.merged
    adapters = [name for name in layer.active_adapters if name in layer.scaling and not is_off]
    total = value.float()
    for adapter in adapters:
        scale = layer.scaling[adapter]
        if kind == "weight":
            left, right = _find_factors(layer, adapter)
            total = torch.addmm(total, left.float(), right.float(), alpha=scale)
        elif layer.lora_bias[adapter]:
            total = total + scale * layer.lora_B[adapter].bias.float()
    return total.to(value.dtype) if adapters else value


def _find_factors(layer: Any, adapter: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return two matrices whose product has the shape of the layer's weight."""
    if isinstance(layer, Embedding):
        return layer.lora_embedding_A[adapter].T, layer.lora_embedding_B[adapter].T
    first, second = layer.lora_A[adapter].weight, layer.lora_B[adapter].weight
    return (first.T, second.T) if layer.fan_in_fan_out else (second, first)


def _find_obstacle(model: Any) -> str | None:
    """Return why its adapters cannot be merged into weights, or None if they can."""
    if getattr(model, "prefix", None) != "lora_":
        return "its adapter is not LoRA"
    found = filter(None, map(_find_part_obstacle, model.modules()))
    return next(found, None) or _find_tied(model)


def _find_part_obstacle(part: Any) -> str | None:
    kind = type(part).__name__
    if isinstance(part, AuxiliaryTrainingWrapper) and not isinstance(part, ModulesToSaveWrapper):
        return f"it trains a part of a layer ({kind})"
    if not isinstance(part, BaseTunerLayer):
        return None
    if not isinstance(part, Linear | Embedding):
        return f"LoRA on a {kind} layer cannot be merged"
    if part.lora_variant:
        return f"it is a variant of LoRA ({type(next(iter(part.lora_variant.values()))).__name__})"
    if any(part.lora_bias.values()) and part.get_base_layer().bias is None:
        return "lora_bias is on for a layer without a bias"
    return None


def _find_tied(model: Any) -> str | None:
    names: dict[int, list[str]] = defaultdict(list)
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names[id(parameter)].append(name)
    for found in names.values():
        adapted = [name for name in found if _BELOW in name or _ORIGINAL in name]
        if len(found) > 1 and adapted:
            return f"{adapted[0]} is tied to another weight, which has not the same adapter"
    return None
