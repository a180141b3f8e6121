"""Keeping frozen blocks out of the backward pass."""

from types import MethodType
from typing import Any


def keep_inputs_without_gradient(model: Any, arguments: Any) -> None:
    """Stop the trainer from asking for gradients of the inputs of a model.

    It does so for re-entrant checkpointing, which alone needs it; every frozen block below the
    first adapter would be recomputed and differentiated for nothing, and each round of sampling
    would add hooks.

    Args:
        model: with an adapter, before one is added, or without; a name is left alone.
        arguments: of the trainer.
    """
    options = arguments.gradient_checkpointing_kwargs or {}
    if isinstance(model, str) or options.get("use_reentrant", False):
        return
    for part in (model, model.get_base_model()) if hasattr(model, "peft_config") else (model,):
        part.enable_input_require_grads = MethodType(_do_nothing, part)


def _do_nothing(_: Any) -> None:
    return None
