"""Which rows of a batch share a prompt, and picking rows out of a batch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from trl.trainer.utils import (
    split_pixel_values_by_grid,
    split_tensor_dict,
    unsplit_pixel_values_by_grid,
)

from groupwise.training.objectives import find_dead_groups


def number_prompts(rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the number of each row's prompt: rows in a row with the same prompt share one.

    Args:
        rows: with ``prompt`` and, if they have pictures, ``image`` or ``images``.
    """
    numbers: list[int] = []
    for place, row in enumerate(rows):
        is_new = place == 0 or not _is_same_prompt(row, rows[place - 1])
        numbers.append(place if place == 0 else numbers[-1] + is_new)
    return numbers


def _is_same_prompt(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether prompt and pictures are equal; the prompts are compared first, being cheaper."""
    return all(_is_equal(one.get(key), other.get(key)) for key in ("prompt", "image", "images"))


def _is_equal(one: Any, other: Any) -> bool:
    """Whether two values of rows are equal; pictures may be arrays, anywhere in a prompt."""
    if one is other or type(one) is not type(other):
        return one is other
    if isinstance(one, np.ndarray | torch.Tensor):
        return one.shape == other.shape and one.dtype == other.dtype and bool((one == other).all())
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_is_equal(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_is_equal, one, other))
    return bool(one == other)


@dataclass(frozen=True)
class Groups:
    """The prompts of a batch of rows.

    Attributes:
        numbers: the prompt's number in its round, ascending, one for each prompt of the batch.
        first_rows: the first row of each prompt, shape [prompts].
        prompt_of_row: place of each row's prompt in ``first_rows``, shape [rows].
    """

    numbers: tuple[int, ...]
    first_rows: torch.Tensor
    prompt_of_row: torch.Tensor

    @classmethod
    def of(cls, prompt_numbers: torch.Tensor) -> Self:
        """Return the groups of rows whose prompts have these numbers, shape [rows]."""
        found, places = torch.unique(prompt_numbers, return_inverse=True)
        rows = torch.arange(len(places), device=places.device)
        first = torch.full_like(found, len(places)).scatter_reduce(0, places, rows, "amin")
        return cls(tuple(found.tolist()), first, places)

    def __len__(self) -> int:
        """The number of prompts."""
        return len(self.numbers)


def shuffle_groups(prompt_numbers: torch.Tensor) -> torch.Tensor:
    """Return an order of the rows in which prompts are shuffled and their rows stay together."""
    found, places = torch.unique(prompt_numbers, return_inverse=True)
    rank = torch.randperm(len(found)).to(places.device)
    return torch.argsort(rank[places], stable=True)


def split_batch(batch: dict[str, Any], num_parts: int, *, is_shuffled: bool) -> list[Any]:
    """Split a round's batch into equal parts; its groups are shuffled before, or are already."""
    rows: dict[str, Any] = split_pixel_values_by_grid(batch)
    if not is_shuffled:
        rows = take_rows(rows, shuffle_groups(batch["prompt_numbers"]))
    parts: list[Any] = split_tensor_dict(rows, num_parts)
    return [unsplit_pixel_values_by_grid(part) for part in parts]


def split_groups(
    rows: torch.Tensor, prompt_numbers: torch.Tensor, max_rows: int
) -> list[torch.Tensor]:
    """Return chunks of at most ``max_rows`` rows, in order, that split no group if possible.

    Args:
        rows: which rows, shape [chosen].
        prompt_numbers: of all rows, shape [rows].
        max_rows: a greater group is a chunk of its own.
    """
    _, sizes = torch.unique_consecutive(prompt_numbers[rows], return_counts=True)
    chunks: list[list[torch.Tensor]] = []
    room = 0
    for group in rows.split(sizes.tolist()):
        if not chunks or len(group) > room:
            chunks.append([])
            room = max_rows
        chunks[-1].append(group)
        room -= len(group)
    return [torch.cat(chunk) for chunk in chunks]


def find_dead_rows(rewards: torch.Tensor, *, group_size: int) -> torch.Tensor:
    """Return which rows are of groups whose rewards are all equal, shape [rows].

    Their advantages are 0 but for rounding. Rows that nothing could score are left out.

    Args:
        rewards: weighted, of every reward function, NaN where unknown, shape [rows, functions].
        group_size: rows of one prompt, which follow each other.
    """
    totals = rewards.nansum(1).masked_fill(rewards.isnan().all(1), torch.nan)
    return find_dead_groups(totals.view(-1, group_size)).repeat_interleave(group_size)


def take_rows(batch: Mapping[str, Any], order: torch.Tensor) -> dict[str, Any]:
    """Return the batch with its rows in this order; values without rows stay as they are."""

    def take(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value[order] if value.ndim else value
        return value if value is None else [value[place] for place in order.tolist()]

    return {key: take(value) for key, value in batch.items()}
