"""One forward pass in which every prompt is computed once and its completions continue it.

A pass has two streams: the prompts without their last token, shape [prompts, prefix, hidden],
and the tails (the last prompt token, then the completion without its last), shape [rows, tail,
hidden]. Without padding they are one row for the blocks, in which the tails attend to the keys and
values of their prompt and to their own past.

Source: PrefixGrouper (2506.05433), here with pictures and with blocks that are skipped.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import MethodType, SimpleNamespace
from typing import Any

import torch
from torch import nn
from transformers.masking_utils import create_masks_for_generate
from transformers.modeling_outputs import BaseModelOutputWithPast

from groupwise.training.fast.streams import Packing, Streams, install_streams

_TEXT_NAMES = ("language_model", "text_model")


@dataclass(frozen=True)
class Trunk:
    """Hidden states that enter the first trained block: the same for every policy of a round.

    Attributes:
        prefixes: of the prompts, shape [prompts, prefix, hidden].
        tails: of the completions, shape [rows, tail, hidden].
    """

    prefixes: torch.Tensor
    tails: torch.Tensor


@dataclass(frozen=True)
class SharedPass:
    """What one pass needs beside the prompts.

    Attributes:
        prompt_of_row: place of each row's prompt, shape [rows].
        tail_ids: last prompt token and the completion without its last, shape [rows, tail].
        mask: 1 for real tokens, shape [rows, prefix + tail].
        positions: of the tails, shape [rows, tail] or [axes, rows, tail].
        packings: what is left of the prompts and of the tails without padding.
        packings: what is left of the prompts and of the tails without padding.
        features: of the pictures, as the vision tower returned them; None: not known.
        pictures: what a frozen vision tower makes them of; None: they are known, or it trains.
        trunk: what earlier passes of the round computed; None: computed here.
        first_trained: number of the first block that has something to train.
        keep_features, keep_trunk: take what was computed here.
    """

    prompt_of_row: torch.Tensor
    tail_ids: torch.Tensor
    mask: torch.Tensor
    positions: torch.Tensor
    packings: tuple[Packing, Packing]
    features: Any | None = None
    pictures: Mapping[str, torch.Tensor] | None = None
    trunk: Trunk | None = None
    first_trained: int = 0
    keep_features: Callable[[Any], None] | None = None
    keep_trunk: Callable[[Trunk], None] | None = None

    def join(self, prompts: Any, tails: torch.Tensor) -> torch.Tensor:
        """Return the row of both, shape [1, tokens, ...]; prompts come first."""
        both = zip(self.packings, (prompts, tails), strict=True)
        return torch.cat([packing.pack(padded) for packing, padded in both], dim=1)

    def join_positions(self, prompts: torch.Tensor) -> torch.Tensor:
        """Return those of both, shape [1, tokens] or [axes, 1, tokens]."""
        if prompts.ndim == 2:
            return self.join(prompts, self.positions)
        axes = zip(prompts, self.positions, strict=True)
        return torch.stack([self.join(*axis) for axis in axes])

    def take_apart(self, row: torch.Tensor) -> Trunk:
        """Return what was joined."""
        num_prompts = self.packings[0].num_tokens
        parts = row.split([num_prompts, row.shape[1] - num_prompts], dim=1)
        both = zip(self.packings, parts, strict=True)
        return Trunk(*(packing.unpack(part) for packing, part in both))


def install_shared_pass(backbone: nn.Module) -> None:
    """Let ``backbone(..., shared=SharedPass)`` return the tails' last hidden states.

    Without ``shared`` the forward is the model's own. The result is packed, shape [1, tokens,
    hidden]: position t of a row predicts token t of the completion.
    """
    own_forward = backbone.forward
    text = find_text_model(backbone)
    install_streams(text)

    def forward(self: Any, *args: Any, shared: SharedPass | None = None, **named: Any) -> Any:
        if shared is None:
            return own_forward(*args, **named)
        named.pop("use_cache", None)
        if text is self:
            return _run_text(text, shared, **named)
        named = _encode_pictures(self, shared, named)
        with _replace_forward(text, partial(_run_text, text, shared)):
            return own_forward(*args, **named)

    backbone.forward = MethodType(forward, backbone)


def find_text_model(backbone: nn.Module) -> Any:
    """Return the part of a backbone that holds the language blocks."""
    name = find_text_name(backbone)
    return backbone if name is None else getattr(backbone, name)


def find_text_name(backbone: nn.Module) -> str | None:
    """Return what that part is called in a model with pictures; None: it is the whole."""
    return next((name for name in _TEXT_NAMES if hasattr(backbone, name)), None)


def _encode_pictures(backbone: Any, shared: SharedPass, named: Mapping[str, Any]) -> dict[str, Any]:
    """Add what the vision tower makes of pictures where it does not train."""
    features = shared.features
    if shared.pictures is not None and shared.keep_features is not None:
        with torch.no_grad():
            features = backbone.get_image_features(**shared.pictures, return_dict=True)
        shared.keep_features(features)
    return dict(named) if features is None else {**named, "mm_encoder_outputs": {"image": features}}


def list_block_types(config: Any) -> list[str]:
    """Return how each block of a text model looks back: at all tokens, at a window of them, ...

    Source: ``create_masks_for_generate`` of Transformers.
    """
    if getattr(config, "layer_types", None):
        return list(config.layer_types)
    has_window = getattr(config, "sliding_window", None) is not None
    every = "sliding_attention" if has_window else "full_attention"
    return [every] * config.num_hidden_layers


def _run_text(
    text: Any,
    shared: SharedPass,
    *,
    attention_mask: torch.Tensor | Mapping[str, Any],
    position_ids: torch.Tensor,
    input_ids: torch.Tensor | None = None,
    inputs_embeds: torch.Tensor | None = None,
    visual_pos_masks: torch.Tensor | None = None,
    deepstack_visual_embeds: list[torch.Tensor] | None = None,
    **_: Any,
) -> BaseModelOutputWithPast:
    prefixes = text.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
    tails = text.embed_tokens(shared.tail_ids)
    streams = _describe_streams(text, shared, (prefixes, tails), attention_mask)
    start = 0
    if shared.trunk is not None:
        start, prefixes, tails = shared.first_trained, shared.trunk.prefixes, shared.trunk.tails
    row = shared.join(prefixes, tails)
    rotary = _rotate(text, row, shared.join_positions(position_ids))
    types, last = list_block_types(text.config), len(text.layers) - 1
    for number in range(start, len(text.layers)):
        if number == shared.first_trained and number > start and shared.keep_trunk is not None:
            shared.keep_trunk(shared.take_apart(row.detach()))
        with torch.set_grad_enabled(torch.is_grad_enabled() and number >= shared.first_trained):
            row = text.layers[number](
                row,
                attention_mask=streams[types[number]],
                position_embeddings=rotary[types[number]],
                use_cache=False,
            )
        if deepstack_visual_embeds is not None and number < min(last, len(deepstack_visual_embeds)):
            is_picture = shared.join(visual_pos_masks, torch.zeros_like(shared.tail_ids).bool())
            row = text._deepstack_process(row, is_picture, deepstack_visual_embeds[number])
    return BaseModelOutputWithPast(last_hidden_state=text.norm(row))


def _describe_streams(
    text: Any, shared: SharedPass, padded: Sequence[torch.Tensor], mask: Any
) -> dict[str, Streams]:
    """Return what blocks are given as their mask, by their type."""
    seen: Any = _SeenTokens(padded[0].shape[1])
    masks = [
        # A model whose pictures look at themselves has made the masks of the prompts.
        mask if isinstance(mask, Mapping) else _make_masks(text, padded[0], mask, None),
        _make_masks(text, padded[1], shared.mask, seen),
    ]
    name = text.config._attn_implementation
    return {
        one: Streams(shared.packings, shared.prompt_of_row, (masks[0][one], masks[1][one]), name)
        for one in set(list_block_types(text.config))
    }


def _make_masks(text: Any, states: torch.Tensor, mask: Any, seen: Any) -> Mapping[str, Any]:
    made = create_masks_for_generate(
        config=text.config, inputs_embeds=states, attention_mask=mask, past_key_values=seen
    )
    types = list_block_types(text.config)
    return made if isinstance(made, dict) else dict.fromkeys(types, made)


def _rotate(text: Any, row: torch.Tensor, positions: torch.Tensor) -> Mapping[str, Any]:
    """Return the position embeddings of a row, by the type of a block."""
    rotary, types = text.rotary_emb, list_block_types(text.config)
    if isinstance(rotary.rope_type, dict):
        return {one: rotary(row, positions, one) for one in set(types)}
    return dict.fromkeys(types, rotary(row, positions))


@contextmanager
def _replace_forward(module: nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    """Within this context a module computes something else, between the hooks that it has."""
    kept = vars(module).get("forward")
    module.forward = forward
    try:
        yield
    finally:
        del module.forward
        if kept is not None:
            module.forward = kept


class _SeenTokens(SimpleNamespace):
    """Stands in for a cache where masks are made: so many tokens were seen before."""

    def __init__(self, num_seen: int) -> None:
        super().__init__(is_compileable=False, num_seen=num_seen)

    def get_query_offset(self, *_: Any) -> int:
        """Where this stream starts."""
        return self.num_seen

    def get_mask_sizes(self, query_length: int, *_: Any) -> tuple[int, int]:
        """Keys in all, and where they start."""
        return self.num_seen + query_length, 0
