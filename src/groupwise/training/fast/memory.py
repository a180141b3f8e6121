"""Stands in for the cache of linear attention: what it keeps of prompts goes on to the tails."""

from typing import Any, Self

import torch


class BlockMemory:
    """States of linear attention, with their gradients.

    Args:
        kept: each of shape [batch, ...].
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
        whole = self._join("convolved", states, dim=-1)
        self._kept["convolved"] = whole[..., -conv_kernel_size:]
        return whole

    def update_recurrent_state(self, states: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        """Keep the state after the last token."""
        self._kept["recurrent"] = states
        return states

    def get_conv_state(self, *_: Any, **__: Any) -> torch.Tensor | None:
        """Return what the tokens before left to convolve."""
        return self._kept.get("convolved")

    def get_recurrent_state(self, *_: Any, **__: Any) -> torch.Tensor | None:
        """Return the state after the tokens before."""
        return self._kept.get("recurrent")

    def is_recording_past(self, *_: Any) -> bool:
        """Nothing is overwritten: gradients go through it."""
        return True

    def _join(self, name: str, new: torch.Tensor, *, dim: int) -> torch.Tensor:
        seen = self._kept.get(name)
        self._kept[name] = new if seen is None else torch.cat([seen, new], dim=dim)
        return self._kept[name]
