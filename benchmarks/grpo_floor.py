"""The least time a GRPO step can take: the arithmetic it needs over what the machine can do."""

import statistics
import time
from typing import Any

import torch
from grpo_models import Shape

from groupwise.training.fast.shared import find_text_model
from groupwise.training.fast.support import find_backbone, find_first_trained


def measure_flops_per_s(size: int, dtype: torch.dtype, device: torch.device) -> float:
    """Return the median rate of ``size``² matrix products, in operations per second."""
    one, other = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    rates = []
    for _ in range(13):
        wait_for(device)
        started = time.perf_counter()
        one @ other
        wait_for(device)
        rates.append(2 * size**3 / (time.perf_counter() - started))
    return statistics.median(rates[3:])


def wait_for(device: torch.device) -> None:
    """Wait until a GPU has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def count_needed_flops(trainer: Any, shape: Shape, picture_size: tuple[int, int]) -> float:
    """Return the operations of linear layers that a step cannot do without.

    Every picture goes through the vision tower once; every token of a prompt once and every
    token of a completion once through the frozen blocks; the trained blocks are run for sampling,
    for the reference (with a KL penalty), and forward and backward for the policy, where a
    backward pass costs as much as the forward pass for activations and next to nothing for the
    weights of LoRA. Attention scores and the head are left out: it is a lower bound.

    Args:
        trainer: holds the policy.
        shape: of the job.
        picture_size: width and height in pixels of a prompt's pictures, if it has any.
    """
    backbone = find_backbone(trainer.model)
    text = find_text_model(backbone)
    num_blocks = len(text.layers)
    first = find_first_trained(backbone, num_blocks)
    per_block = 2 * sum(p.numel() for n, p in text.layers[0].named_parameters() if "lora" not in n)
    patches = shape.num_pictures * (picture_size[0] // 14) * (picture_size[1] // 14)
    prompt = shape.prompt_tokens or patches // 4
    tokens = shape.num_prompts * (prompt + shape.group_size * shape.num_tokens)
    num_passes = 1 + (shape.beta > 0) + 2
    language = tokens * per_block * (first + num_passes * (num_blocks - first))
    if shape.prompt_tokens is not None:
        return float(language)
    weights = sum(parameter.numel() for parameter in backbone.visual.blocks.parameters())
    return float(language + shape.num_prompts * patches * 2 * weights)
