"""Prompts and completions as one row of tokens without padding, which blocks compute at once.

Only what mixes tokens takes the row apart. Everything else is the model's own code, so that
adapters, quantised layers and attention kernels work as they are.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import MethodType
from typing import Any, Self

import torch
from torch import nn
from transformers import AttentionInterface

from groupwise.training.fast.memory import BlockMemory

_NAME = "groupwise_streams"


@dataclass(frozen=True)
class Packing:
    """Where the real tokens of padded rows are.

    Attributes:
        shape: of the padded rows: how many, and how wide.
        places: among all their tokens, shape [tokens]; None: nothing is left out.
    """

    shape: tuple[int, int]
    places: torch.Tensor | None = None

    @classmethod
    def of(cls, mask: torch.Tensor) -> Self:
        """Leave out what is before the first and behind the last real token of each row.

        Args:
            mask: 1 for real tokens, shape [rows, width]. If there are none, nothing is left out.
        """
        is_behind, is_before = mask.cumsum(1) > 0, mask.flip(1).cumsum(1).flip(1) > 0
        places = (is_behind & is_before).flatten().nonzero()[:, 0]
        shape = (mask.shape[0], mask.shape[1])
        return cls(shape) if len(places) in (0, mask.numel()) else cls(shape, places)

    @property
    def num_tokens(self) -> int:
        """How many are left."""
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


class KeysKnownError(Exception):
    """The last block was asked for the prompts' keys and values alone; it has them."""


@dataclass(frozen=True)
class Streams:
    """What a block is given as its mask, and hands on to what mixes tokens.

    Attributes:
        packings: of the prompts and of the tails, which follow them in the row.
        prompt_of_row: place of each tail's prompt, shape [rows].
        masks: the model's own, of the padded prompts and of the padded tails.
        implementation: by which the model attends.
    """

    packings: tuple[Packing, Packing]
    prompt_of_row: torch.Tensor
    masks: tuple[Any, Any]
    implementation: str

    def split(self, row: torch.Tensor, dim: int = 1) -> tuple[torch.Tensor, ...]:
        """Return the prompts' part of a row, and the tails'."""
        return row.split([packing.num_tokens for packing in self.packings], dim)

    def attend(self, own: Callable[..., Any], *given: torch.Tensor) -> torch.Tensor:
        """Return what attention makes of a row, shape [1, tokens, heads, head size].

        Args:
            own: the model's attention.
            given: queries, keys and values, each of shape [1, heads, tokens, head size].
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
class _PromptKeys:
    """In place of streams: the prompts alone, of which only keys and values are wanted."""

    streams: Streams

    def attend(self, _: Any, *given: torch.Tensor) -> torch.Tensor:
        raise KeysKnownError(_unpack_heads(self.streams.packings[0], given[1:]))


@dataclass(frozen=True)
class _Tails:
    """In place of streams: the tails alone, of prompts whose keys and values are known."""

    streams: Streams
    known: Sequence[torch.Tensor]

    def attend(self, own: Callable[..., Any], *given: torch.Tensor) -> torch.Tensor:
        return self.streams.attend_tails(own, *given, known=self.known)


def install_streams(text: Any) -> None:
    """Let the blocks of a text model take ``Streams`` as their mask; the last returns the tails.

    The last attends to the prompts' keys and computes no more of them, which nothing would read.
    """
    for block in text.layers:
        run, mixer = _run, getattr(block, "linear_attn", None)
        if mixer is not None:
            mixer.forward = MethodType(partial(_mix, mixer.forward), mixer)
        if block is text.layers[-1]:
            run = _run_last if mixer is None else _run_and_drop
        block.forward = MethodType(partial(_run_block, block.forward, run, text.config), block)


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
    if not isinstance(named.get("attention_mask"), Streams):
        return own(states, *given, **named)

    def run_whole(states: torch.Tensor) -> torch.Tensor:
        with _attending_by_streams(block, config):
            return run(own, states, **named)

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
    streams = attention_mask
    prompts, tails = streams.split(states)
    rotary = list(zip(*(streams.split(part, -2) for part in position_embeddings), strict=True))
    try:
        own(prompts, attention_mask=_PromptKeys(streams), position_embeddings=rotary[0], **named)
    except KeysKnownError as known:
        mask = _Tails(streams, *known.args)
    return _run(own, tails, attention_mask=mask, position_embeddings=rotary[1], **named)


@contextmanager
def _attending_by_streams(block: Any, config: Any) -> Iterator[None]:
    """Within this context a block attends as ``Streams`` says, and is computed but once."""
    kept = config._attn_implementation, getattr(block, "gradient_checkpointing", False)
    config._attn_implementation, block.gradient_checkpointing = _NAME, False
    try:
        yield
    finally:
        config._attn_implementation, block.gradient_checkpointing = kept


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
