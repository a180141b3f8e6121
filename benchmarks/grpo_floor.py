"""The least time a GRPO step can take: the arithmetic it needs over what the machine can do."""

import time
from typing import Any

import torch
from grpo_models import Shape, Sizes

from groupwise.training.fast.shared import find_text_model
from groupwise.training.fast.support import find_backbone, find_first_trained


def measure_flops_per_s(size: int = 1024, repeats: int = 10) -> float:
    """Return the rate of float32 matrix products of this process, in operations per second."""
    one, other = torch.randn(size, size), torch.randn(size, size)
    torch.mm(one, other)
    started = time.perf_counter()
    for _ in range(repeats):
        torch.mm(one, other)
    return repeats * 2 * size**3 / (time.perf_counter() - started)


def count_needed_flops(trainer: Any, shape: Shape, sizes: Sizes) -> float:
    """Return the operations of linear layers that a step cannot do without.

    Every picture goes through the vision tower once; every token of a prompt once and every
    token of a completion once through the frozen blocks; the trained blocks are run for sampling,
    for the reference (with a KL penalty), and forward and backward for the policy, where a
    backward pass costs as much as the forward pass for activations and next to nothing for the
    weights of LoRA. Attention scores and the head are left out: it is a lower bound.
    """
    backbone = find_backbone(trainer.model)
    text = find_text_model(backbone)
    num_blocks = len(text.layers)
    first = find_first_trained(backbone, num_blocks)
    per_block = 2 * sum(p.numel() for n, p in text.layers[0].named_parameters() if "lora" not in n)
    prompt = _count_prompt_tokens(shape, sizes)
    tokens = shape.num_prompts * (prompt + shape.group_size * shape.num_tokens)
    num_passes = 1 + (shape.beta > 0) + 2
    language = tokens * per_block * (first + num_passes * (num_blocks - first))
    return language + _count_vision(backbone, shape, sizes)


def _count_prompt_tokens(shape: Shape, sizes: Sizes) -> int:
    return shape.prompt_tokens or (sizes.side // 28) ** 2


def _count_vision(backbone: Any, shape: Shape, sizes: Sizes) -> float:
    if shape.prompt_tokens is not None:
        return 0.0
    weights = sum(parameter.numel() for parameter in backbone.visual.blocks.parameters())
    return shape.num_prompts * (sizes.side // 14) ** 2 * 2 * weights
