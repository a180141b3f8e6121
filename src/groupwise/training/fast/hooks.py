"""Keeping frozen blocks out of the backward pass."""

from types import MethodType
from typing import Any


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
