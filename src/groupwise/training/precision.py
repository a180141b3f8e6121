"""What a model computes in, and how fine that is."""

import math
from typing import Any

import torch


def find_precision(model: Any) -> torch.dtype:
    """Return in what a model computes its logits: autocast's type, or else its weights'."""
    kind = model.device.type
    is_cast = torch.is_autocast_enabled(kind)
    return torch.get_autocast_dtype(kind) if is_cast else model.get_output_embeddings().weight.dtype


def find_ulp(value: float, dtype: torch.dtype) -> float:
    """Return one unit in the last place of a number of this size."""
    return math.ldexp(torch.finfo(dtype).eps, math.frexp(value)[1] - 1)


def find_resolution(logits: torch.Tensor, log_probs: torch.Tensor, dtype: torch.dtype) -> float:
    """Return one unit in the last place of logits, or of log-probabilities, which are float32.

    Args:
        logits: over the temperature, of any shape.
        log_probs: of any shape, not empty.
        dtype: in which logits are computed.
    """
    return max(
        find_ulp(float(logits.abs().max()), dtype),
        find_ulp(float(log_probs.abs().max()), torch.float32),
    )
