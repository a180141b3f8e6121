"""One forward pass in which every prompt is computed once and its completions continue it.

A pass has two streams: the prompts without their last token, shape [prompts, prefix, hidden],
and the tails (the last prompt token, then the completion without its last), shape [rows, tail,
hidden]. In each block the prompts go first; the tails then attend to the keys and values of
their prompt and to their own past. Everything else is the model's own code, so that adapters,
quantised layers and attention kernels work as they are.

Source: PrefixGrouper (2506.05433), here with pictures and with blocks that are skipped.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import MethodType, SimpleNamespace
from typing import Any

import torch
from torch import nn
from transformers.masking_utils import create_masks_for_generate
from transformers.modeling_outputs import BaseModelOutputWithPast

from groupwise.training.fast.memory import BlockMemory

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
    features: Any | None = None
    pictures: Mapping[str, torch.Tensor] | None = None
    trunk: Trunk | None = None
    first_trained: int = 0
    keep_features: Callable[[Any], None] | None = None
    keep_trunk: Callable[[Trunk], None] | None = None


def install_shared_pass(backbone: nn.Module) -> None:
    """Let ``backbone(..., shared=SharedPass)`` return the tails' last hidden states.

    Without ``shared`` the forward is the model's own. The result has shape [rows, tail, hidden]:
    its position t predicts token t of the completion.
    """
    own_forward = backbone.forward
    text = find_text_model(backbone)

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


@dataclass(frozen=True)
class _Stream:
    """What blocks are told about one stream, by their type."""

    masks: Mapping[str, Any]
    rotary: Mapping[str, Any]


def _run_text(  # noqa: PLR0913 (the arguments of the text model itself)
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
    streams = (
        _describe_stream(text, prefixes, attention_mask, position_ids, num_seen=0),
        _describe_stream(text, tails, shared.mask, shared.positions, num_seen=prefixes.shape[1]),
    )
    types = list_block_types(text.config)
    start = 0
    if shared.trunk is not None:
        start, prefixes, tails = shared.first_trained, shared.trunk.prefixes, shared.trunk.tails
    for number in range(start, len(text.layers)):
        if number == shared.first_trained and number > start and shared.keep_trunk is not None:
            shared.keep_trunk(Trunk(prefixes.detach(), tails.detach()))
        with torch.set_grad_enabled(torch.is_grad_enabled() and number >= shared.first_trained):
            prefixes, tails = _run_block(
                text.layers[number], types[number], (prefixes, tails), streams, shared.prompt_of_row
            )
        if deepstack_visual_embeds is not None and number < len(deepstack_visual_embeds):
            prefixes = text._deepstack_process(
                prefixes, visual_pos_masks, deepstack_visual_embeds[number]
            )
    return BaseModelOutputWithPast(last_hidden_state=text.norm(tails))


def _describe_stream(
    text: Any, states: torch.Tensor, mask: Any, positions: torch.Tensor, *, num_seen: int
) -> _Stream:
    seen: Any = _SeenTokens(num_seen) if num_seen else None
    types = set(list_block_types(text.config))
    # A model whose pictures look at themselves has made the masks of the prompts.
    masks = (
        mask
        if isinstance(mask, Mapping)
        else create_masks_for_generate(
            config=text.config, inputs_embeds=states, attention_mask=mask, past_key_values=seen
        )
    )
    rotary = text.rotary_emb
    return _Stream(
        masks if isinstance(masks, dict) else dict.fromkeys(types, masks),
        {one: rotary(states, positions, one) for one in types}
        if isinstance(rotary.rope_type, dict)
        else dict.fromkeys(types, rotary(states, positions)),
    )


def _run_block(
    block: Any,
    block_type: str,
    states: tuple[torch.Tensor, torch.Tensor],
    streams: tuple[_Stream, _Stream],
    prompt_of_row: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Run both streams in one call of the block.

    Gradients reach the prompts through their keys, past their output: what gathers a block's
    weights around each call (FSDP2) must see one call that all gradients enter and leave by.
    """
    own_forward = block.forward

    def call(stream: _Stream, own: torch.Tensor, memory: BlockMemory) -> torch.Tensor:
        output = own_forward(
            own,
            attention_mask=stream.masks[block_type],
            position_embeddings=stream.rotary[block_type],
            past_key_values=memory,
            use_cache=True,
        )
        return output[0] if isinstance(output, tuple) else output

    def run(prefixes: torch.Tensor, tails: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        memory = BlockMemory()
        prefixes = call(streams[0], prefixes, memory)
        return prefixes, call(streams[1], tails, memory.repeat(prompt_of_row))

    with _replace_forward(block, partial(_checkpoint, block, run)):
        return block(*states)


def _checkpoint(
    block: Any, run: Callable[..., Any], prefixes: torch.Tensor, tails: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Run both streams, and once more in the backward pass where the block is to do so."""
    if not (getattr(block, "gradient_checkpointing", False) and block.training):
        return run(prefixes, tails)
    # The block would checkpoint each stream on its own and lose the keys between them.
    checkpoint = block._gradient_checkpointing_func
    is_reentrant = getattr(checkpoint, "keywords", {}).get("use_reentrant", False)
    if is_reentrant and torch.is_grad_enabled() and not tails.requires_grad:
        # Without an input that has a gradient it would give none to the weights either.
        tails = tails.detach().requires_grad_()

    def run_whole(prefixes: torch.Tensor, tails: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        block.gradient_checkpointing = False
        try:
            return run(prefixes, tails)
        finally:
            block.gradient_checkpointing = True

    return checkpoint(run_whole, prefixes, tails)


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
