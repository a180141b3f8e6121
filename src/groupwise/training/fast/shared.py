"""One forward pass in which every prompt is computed once and its completions continue it.

A pass has two streams: the prompts without their last token, shape [prompts, prefix, hidden], and
the tails (the last prompt token, then the completion without its last), shape [rows, tail, hidden].
Without padding they are one row of tokens for the blocks, and only what mixes tokens takes the row
apart: the tails attend to the keys and values of their prompt and to their own past. Everything
else is the model's own code, so that adapters, quantised layers and attention kernels work as they
are.

Source: PrefixGrouper (2506.05433), here with pictures and with blocks that are skipped.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MethodType, SimpleNamespace
from typing import Any, Self

import torch
from torch import nn
from transformers import AttentionInterface
from transformers.masking_utils import create_masks_for_generate
from transformers.modeling_outputs import BaseModelOutputWithPast

_NAME = "groupwise_streams"
_TEXT_NAMES = ("language_model", "text_model")


@dataclass(frozen=True)
class Packing:
    """Where the real tokens of padded rows are."""

    shape: tuple[int, int]  # of the padded rows: how many, and how wide
    places: torch.Tensor | None = None  # among all their tokens; None: nothing is left out

    @classmethod
    def of(cls, mask: torch.Tensor) -> Self:
        """Leave out what is before the first and behind the last real token of each row.

        The mask is 1 for real tokens. If there are none, nothing is left out.
        """
        is_behind, is_before = mask.cumsum(1) > 0, mask.flip(1).cumsum(1).flip(1) > 0
        places = (is_behind & is_before).flatten().nonzero()[:, 0]
        shape = (mask.shape[0], mask.shape[1])
        return cls(shape) if len(places) in (0, mask.numel()) else cls(shape, places)

    @property
    def num_tokens(self) -> int:
        return self.shape[0] * self.shape[1] if self.places is None else len(self.places)

    def pack(self, rows: torch.Tensor) -> torch.Tensor:
        """Return what is left as one row, shape [1, tokens, ...], of rows [rows, width, ...]."""
        flat = rows.flatten(0, 1)
        return (flat if self.places is None else flat.index_select(0, self.places))[None]

    def unpack(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the rows, with zeros for padding; the inverse of ``pack``."""
        flat = tokens[0]
        if self.places is not None:
            padded = flat.new_zeros(self.shape[0] * self.shape[1], *flat.shape[1:])
            flat = padded.index_copy(0, self.places, flat)
        return flat.unflatten(0, self.shape)


@dataclass(frozen=True)
class Trunk:
    """Hidden states that enter the first trained block: the same for every policy of a round."""

    prefixes: torch.Tensor  # of the prompts, [prompts, prefix, hidden]
    tails: torch.Tensor  # of the completions, [rows, tail, hidden]


@dataclass(frozen=True)
class SharedPass:
    """What one pass needs beside the prompts, and what takes what it computes."""

    prompt_of_row: torch.Tensor  # place of each row's prompt, [rows]
    tail_ids: torch.Tensor  # last prompt token and the completion without its last, [rows, tail]
    mask: torch.Tensor  # 1 for real tokens, [rows, prefix + tail]
    positions: torch.Tensor  # of the tails, [rows, tail] or [axes, rows, tail]
    packings: tuple[Packing, Packing]  # of the prompts and of the tails
    features: Any | None = None  # of the pictures, as the vision tower returned them, if known
    # What a frozen vision tower makes them of; None: they are known, or it trains.
    pictures: Mapping[str, torch.Tensor] | None = None
    trunk: Trunk | None = None  # what earlier passes of the round computed
    first_trained: int = 0  # number of the first block that has something to train
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
    for block in text.layers:
        run, mixer = _run, getattr(block, "linear_attn", None)
        if mixer is not None:
            mixer.forward = MethodType(partial(_mix, mixer.forward), mixer)
        if block is text.layers[-1]:
            run = _run_last if mixer is None else _run_and_drop
        block.forward = MethodType(partial(_run_block, block.forward, run, text.config), block)

    def forward(self: Any, *args: Any, shared: SharedPass | None = None, **named: Any) -> Any:
        if shared is None:
            return own_forward(*args, **named)
        named.pop("use_cache", None)
        if text is self:
            return _run_text(text, shared, **named)
        features = shared.features
        if shared.pictures is not None and shared.keep_features is not None:
            with torch.no_grad():
                features = self.get_image_features(**shared.pictures, return_dict=True)
            shared.keep_features(features)
        if features is not None:
            named["mm_encoder_outputs"] = {"image": features}
        # It computes something else, between the hooks that it has.
        kept = vars(text).get("forward")
        text.forward = partial(_run_text, text, shared)
        try:
            return own_forward(*args, **named)
        finally:
            del text.forward
            if kept is not None:
                text.forward = kept

    backbone.forward = MethodType(forward, backbone)


def find_text_model(backbone: nn.Module) -> Any:
    """Return the part of a backbone that holds the language blocks."""
    name = find_text_name(backbone)
    return backbone if name is None else getattr(backbone, name)


def find_text_name(backbone: nn.Module) -> str | None:
    """Return what that part is called in a model with pictures; None: it is the whole."""
    return next((name for name in _TEXT_NAMES if hasattr(backbone, name)), None)


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
    """Compute what the text model itself would, given its own arguments."""
    prefixes = text.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
    tails = text.embed_tokens(shared.tail_ids)
    types, last = list_block_types(text.config), len(text.layers) - 1
    streams = _describe_streams(text, shared, (prefixes, tails), attention_mask)
    start = 0
    if shared.trunk is not None:
        start, prefixes, tails = shared.first_trained, shared.trunk.prefixes, shared.trunk.tails
    row = shared.join(prefixes, tails)
    positions = shared.join_positions(position_ids)
    rotary = text.rotary_emb  # of one kind, or of one for each type of block
    if isinstance(rotary.rope_type, dict):
        turned = {one: rotary(row, positions, one) for one in set(types)}
    else:
        turned = dict.fromkeys(types, rotary(row, positions))
    for number in range(start, len(text.layers)):
        if number == shared.first_trained and number > start and shared.keep_trunk is not None:
            shared.keep_trunk(shared.take_apart(row.detach()))
        with torch.set_grad_enabled(torch.is_grad_enabled() and number >= shared.first_trained):
            row = text.layers[number](
                row,
                attention_mask=streams[types[number]],
                position_embeddings=turned[types[number]],
                use_cache=False,
            )
        if deepstack_visual_embeds is not None and number < min(last, len(deepstack_visual_embeds)):
            is_picture = shared.join(visual_pos_masks, torch.zeros_like(shared.tail_ids).bool())
            row = text._deepstack_process(row, is_picture, deepstack_visual_embeds[number])
    return BaseModelOutputWithPast(last_hidden_state=text.norm(row))


def _describe_streams(
    text: Any, shared: SharedPass, padded: Sequence[torch.Tensor], mask: Any
) -> "dict[str, Streams]":
    """Return what blocks are given as their mask, by their type."""
    types, num_seen = list_block_types(text.config), padded[0].shape[1]

    def make(states: torch.Tensor, mask: Any, seen: Any) -> Mapping[str, Any]:
        made = create_masks_for_generate(
            config=text.config, inputs_embeds=states, attention_mask=mask, past_key_values=seen
        )
        return made if isinstance(made, dict) else dict.fromkeys(types, made)

    # In place of a cache: so many tokens were seen before.
    seen = SimpleNamespace(
        is_compileable=False,
        get_query_offset=lambda *_: num_seen,
        get_mask_sizes=lambda query_length, *_: (num_seen + query_length, 0),
    )
    # A model whose pictures look at themselves has made the masks of the prompts.
    first = mask if isinstance(mask, Mapping) else make(padded[0], mask, None)
    masks = (first, make(padded[1], shared.mask, seen))
    name = text.config._attn_implementation
    return {
        one: Streams(shared.packings, shared.prompt_of_row, (masks[0][one], masks[1][one]), name)
        for one in set(types)
    }


class KeysKnownError(Exception):
    """The last block was asked for the prompts' keys and values alone; it has them."""


@dataclass(frozen=True)
class Streams:
    """What a block is given as its mask, and hands on to what mixes tokens."""

    packings: tuple[Packing, Packing]  # of the prompts and of the tails, which follow them
    prompt_of_row: torch.Tensor  # place of each tail's prompt, [rows]
    masks: tuple[Any, Any]  # the model's own, of the padded prompts and of the padded tails
    implementation: str  # by which the model attends

    def split(self, row: torch.Tensor, dim: int = 1) -> tuple[torch.Tensor, ...]:
        """Return the prompts' part of a row, and the tails'."""
        return row.split([packing.num_tokens for packing in self.packings], dim)

    def attend(self, own: Callable[..., Any], *given: torch.Tensor) -> torch.Tensor:
        """Return what attention makes of a row, shape [1, tokens, heads, head size].

        ``given`` are queries, keys and values, each of shape [1, heads, tokens, head size].
        """
        prompts, tails = zip(*(self.split(part, 2) for part in given), strict=True)
        prompts = _unpack_heads(self.packings[0], prompts)
        first = self.packings[0].pack(own(*prompts, self.masks[0])[0])
        return torch.cat([first, self.attend_tails(own, *tails, known=prompts[1:])], dim=1)

    def attend_tails(
        self, own: Callable[..., Any], *given: torch.Tensor, known: Sequence[torch.Tensor]
    ) -> torch.Tensor:
        """Return what attention makes of the tails; ``known`` are the prompts' keys and values."""
        queries, *new = _unpack_heads(self.packings[1], given)
        # Unlike indexing, it adds a group's gradients up in the order of its rows, always.
        seen = [part.index_select(0, self.prompt_of_row) for part in known]
        keys, values = (torch.cat(both, dim=2) for both in zip(seen, new, strict=True))
        return self.packings[1].pack(own(queries, keys, values, self.masks[1])[0])

    def mix(self, own: Callable[..., torch.Tensor], row: torch.Tensor) -> torch.Tensor:
        """Return what linear attention makes of a row, shape [1, tokens, hidden]."""
        memory = BlockMemory()
        mixed: list[torch.Tensor] = []
        for packing, mask, part in zip(self.packings, self.masks, self.split(row), strict=True):
            found = own(packing.unpack(part), cache_params=memory, attention_mask=mask)
            mixed.append(packing.pack(found))
            memory = memory.repeat(self.prompt_of_row)
        return torch.cat(mixed, dim=1)


@dataclass(frozen=True)
class _Part:
    """In place of streams: the prompts alone, or the tails of prompts whose keys are known."""

    streams: Streams
    known: Sequence[torch.Tensor] | None = None

    def attend(self, own: Callable[..., Any], *given: torch.Tensor) -> torch.Tensor:
        if self.known is None:
            raise KeysKnownError(_unpack_heads(self.streams.packings[0], given[1:]))
        return self.streams.attend_tails(own, *given, known=self.known)


class BlockMemory:
    """In place of the cache of linear attention: what it keeps of prompts goes on to the tails.

    States, each of shape [batch, ...], have their gradients: nothing is overwritten.
    """

    def __init__(self, **kept: torch.Tensor) -> None:
        self._kept = kept

    def repeat(self, prompt_of_row: torch.Tensor) -> Self:
        """Return the memory of rows that continue these prompts, shape [rows]."""
        # Unlike indexing, it adds a group's gradients up in the order of its rows, always.
        rows = {name: part.index_select(0, prompt_of_row) for name, part in self._kept.items()}
        return type(self)(**rows)

    def update_conv_state(
        self, states: torch.Tensor, *_: Any, conv_kernel_size: int, **__: Any
    ) -> torch.Tensor:
        """Return what to convolve, shape [batch, channels, tokens]; keep what a kernel sees."""
        seen = self._kept.get("convolved")
        whole = states if seen is None else torch.cat([seen, states], dim=-1)
        self._kept["convolved"] = whole[..., -conv_kernel_size:]
        return whole

    def update_recurrent_state(self, states: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        self._kept["recurrent"] = states
        return states

    def get_conv_state(self, *_: Any, **__: Any) -> torch.Tensor | None:
        return self._kept.get("convolved")

    def get_recurrent_state(self, *_: Any, **__: Any) -> torch.Tensor | None:
        return self._kept.get("recurrent")

    def is_recording_past(self, *_: Any) -> bool:
        return True


def _mix(own: Callable[..., Any], _: nn.Module, hidden_states: torch.Tensor, **named: Any) -> Any:
    streams = named.get("attention_mask")
    if not isinstance(streams, Streams):
        return own(hidden_states, **named)
    return streams.mix(own, hidden_states)


def _run_block(
    own: Callable[..., Any],
    run: Callable[..., torch.Tensor],
    config: Any,
    block: Any,
    states: torch.Tensor,
    *given: Any,
    **named: Any,
) -> Any:
    """Call a block once for both streams; checkpointing is inside, behind hooks that gather."""
    if not isinstance(named.get("attention_mask"), Streams):
        return own(states, *given, **named)

    def run_whole(states: torch.Tensor) -> torch.Tensor:
        # Within this call the block attends as ``Streams`` says, and is computed but once.
        kept = config._attn_implementation, getattr(block, "gradient_checkpointing", False)
        config._attn_implementation, block.gradient_checkpointing = _NAME, False
        try:
            return run(own, states, **named)
        finally:
            config._attn_implementation, block.gradient_checkpointing = kept

    if not (getattr(block, "gradient_checkpointing", False) and block.training):
        return run_whole(states)
    checkpoint = block._gradient_checkpointing_func
    is_reentrant = getattr(checkpoint, "keywords", {}).get("use_reentrant", False)
    if is_reentrant and torch.is_grad_enabled() and not states.requires_grad:
        # Without an input that has a gradient it would give none to the weights either.
        states = states.detach().requires_grad_()
    return checkpoint(run_whole, states)


def _run(own: Callable[..., Any], states: torch.Tensor, **named: Any) -> torch.Tensor:
    output = own(states, **named)
    return output[0] if isinstance(output, tuple) else output


def _run_and_drop(
    own: Callable[..., Any], states: torch.Tensor, *, attention_mask: Streams, **named: Any
) -> torch.Tensor:
    row = _run(own, states, attention_mask=attention_mask, **named)
    return attention_mask.split(row)[1]


def _run_last(
    own: Callable[..., Any],
    states: torch.Tensor,
    *,
    attention_mask: Streams,
    position_embeddings: Sequence[torch.Tensor],
    **named: Any,
) -> torch.Tensor:
    """Return the tails: nothing would read more of the prompts than their keys and values."""
    streams = attention_mask
    prompts, tails = streams.split(states)
    rotary = list(zip(*(streams.split(part, -2) for part in position_embeddings), strict=True))
    try:
        own(prompts, attention_mask=_Part(streams), position_embeddings=rotary[0], **named)
    except KeysKnownError as known:
        mask = _Part(streams, *known.args)
    return _run(own, tails, attention_mask=mask, position_embeddings=rotary[1], **named)


def _attend(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: Any,
    **named: Any,
) -> tuple[torch.Tensor, None]:
    code: Any = sys.modules[type(module).__module__]
    streams = mask if isinstance(mask, Streams) else mask.streams
    find = code.ALL_ATTENTION_FUNCTIONS.get_interface
    own = find(streams.implementation, code.eager_attention_forward)
    return mask.attend(partial(own, module, **named), query, key, value), None


def _unpack_heads(packing: Packing, given: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return each with shape [rows, heads, width, head size] of [1, heads, tokens, head size]."""
    return [packing.unpack(part.transpose(1, 2)).transpose(1, 2) for part in given]


AttentionInterface.register(_NAME, _attend)
