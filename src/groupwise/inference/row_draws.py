"""Draws keyed by row: what is sampled for a row follows from its key and its own distribution.

How many rows there are, which share its batch and how many processes sample plays no part.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from transformers import LogitsProcessor, LogitsProcessorList
from transformers.distributed.fsdp import is_fsdp_managed_module
from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled

RowKey = tuple[int, int]
"""A row's seed and the number of its completion; each in [0, 2**64)."""


def draw_by_row(keys: Sequence[RowKey]) -> Callable[..., Any]:
    """Return a ``custom_generate`` of Transformers that draws each row's tokens by its key.

    Penalties, temperature, top-k and top-p are those that ``generate`` was given; where it was
    told not to sample, nothing is drawn.

    Args:
        keys: of the rows, each prompt's completions one after the other.
    """

    def sample(model: Any, input_ids: torch.Tensor, **named: Any) -> Any:
        config, num_given = named["generation_config"], input_ids.shape[1]
        if config.do_sample:
            uniforms = draw_uniforms(keys, config.max_length - num_given)
            draw = _Draw(uniforms.to(input_ids.device), num_given)
            named["logits_processor"] = LogitsProcessorList([*named["logits_processor"], draw])
            config.do_sample = False  # what was drawn is the likeliest; the config is a copy
        # ``generate`` does not tell a callable that others wait for its forward passes.
        spread = is_deepspeed_zero3_enabled() or is_fsdp_managed_module(model)
        return type(model)._sample(model, input_ids, synced_gpus=spread, **named)

    return sample


def draw_uniforms(keys: Sequence[RowKey], num_tokens: int) -> torch.Tensor:
    """Return numbers from [0, 1), float64 of shape [rows, tokens]; fewer tokens are a prefix."""
    rows = [np.random.Generator(np.random.Philox(key=key)).random(num_tokens) for key in keys]
    return torch.from_numpy(np.stack(rows))


def pick_tokens(scores: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """Return the token of each row whose share of the probability its number falls into.

    Sums are in float64: in float32 the rarest of 150,000 tokens would be lost.

    Args:
        scores: logits or log-probabilities, shape [rows, vocabulary]; -inf is never picked.
        uniforms: from [0, 1), float64, shape [rows].

    Returns:
        Token ids, shape [rows].
    """
    sums = scores.softmax(-1).to(uniforms.device).cumsum(-1, dtype=torch.float64)
    places = uniforms[:, None] * sums[:, -1:]
    return torch.searchsorted(sums, places, right=True)[:, 0].to(scores.device)


class _Draw(LogitsProcessor):
    """The last processor: makes the drawn token of each row the likeliest.

    Args:
        uniforms: shape [rows, tokens].
        num_given: tokens of a prompt, padding included.
    """

    def __init__(self, uniforms: torch.Tensor, num_given: int) -> None:
        self.uniforms = uniforms
        self.num_given = num_given

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        tokens = pick_tokens(scores, self.uniforms[:, input_ids.shape[1] - self.num_given])
        return scores.scatter_(1, tokens[:, None], torch.inf)
