"""A round of sampling and its updates: which rows share a prompt, and what is computed once.

What does not follow from weights, optimizer and generators is written beside a checkpoint. Kept
states are not computed again: sampling made them token by token; another pass rounds differently.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from pickle import UnpicklingError
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
import torch
from torch.nn import functional

from groupwise.core import TrainingError
from groupwise.training.fast.shared import Trunk


def number_prompts(rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the number of each row's prompt: rows in a row with the same prompt share one."""
    numbers: list[int] = []
    for place, row in enumerate(rows):
        before = rows[place - 1]
        is_new = place > 0 and not all(
            _is_equal(row.get(key), before.get(key)) for key in ("prompt", "image", "images")
        )
        numbers.append(numbers[-1] + is_new if place else 0)
    return numbers


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
    numbers: tuple[int, ...]  # of each prompt in its round, ascending
    first_rows: torch.Tensor  # the first row of each prompt, [prompts]
    prompt_of_row: torch.Tensor  # place of each row's prompt in ``first_rows``, [rows]

    @classmethod
    def of(cls, prompt_numbers: torch.Tensor) -> Self:
        found, places = torch.unique(prompt_numbers, return_inverse=True)
        rows = torch.arange(len(places), device=places.device)
        first = torch.full_like(found, len(places)).scatter_reduce(0, places, rows, "amin")
        return cls(tuple(found.tolist()), first, places)


def shuffle_groups(prompt_numbers: torch.Tensor) -> torch.Tensor:
    found, places = torch.unique(prompt_numbers, return_inverse=True)
    rank = torch.randperm(len(found)).to(places.device)
    return torch.argsort(rank[places], stable=True)


def split_batch(batch: dict[str, Any], num_parts: int, *, is_shuffled: bool) -> list[Any]:
    from trl.trainer import utils

    rows: dict[str, Any] = utils.split_pixel_values_by_grid(batch)
    if not is_shuffled:
        order = shuffle_groups(batch["prompt_numbers"])
        places = order.tolist()
        for key, value in rows.items():
            if isinstance(value, torch.Tensor):
                rows[key] = value[order] if value.ndim else value
            elif value is not None:
                rows[key] = [value[place] for place in places]
    parts: list[Any] = utils.split_tensor_dict(rows, num_parts)
    return [utils.unsplit_pixel_values_by_grid(part) for part in parts]


def split_groups(
    rows: torch.Tensor, prompt_numbers: torch.Tensor, max_rows: int
) -> list[torch.Tensor]:
    """Return chunks of at most so many of these rows, in order, that split no group if possible."""
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


def find_dead_groups(rewards: torch.Tensor) -> torch.Tensor:
    """Return which groups, [groups], teach nothing: all rewards [groups, answers] are equal.

    NaN is unscored; groups with one scored answer or none are among them.
    """
    unscored = rewards.isnan()
    greatest = rewards.masked_fill(unscored, -torch.inf).amax(1)
    return greatest <= rewards.masked_fill(unscored, torch.inf).amin(1)


def find_dead_rows(rewards: torch.Tensor, *, group_size: int) -> torch.Tensor:
    """Return which rows are of dead groups, [rows], of weighted rewards [rows, functions]."""
    totals = rewards.nansum(1).masked_fill(rewards.isnan().all(1), torch.nan)
    return find_dead_groups(totals.view(-1, group_size)).repeat_interleave(group_size)


@dataclass
class Round:
    """One batch of completions and what its passes share, by number of the prompt or by row."""

    groups: Groups  # of all rows, in the order in which they were sampled
    # Features of each prompt's pictures: pooled, then one for each deepstack level.
    pictures: dict[int, list[list[torch.Tensor]]] = field(default_factory=dict)
    prefixes: dict[int, torch.Tensor] = field(default_factory=dict)  # trunks, [prefix, hidden]
    tails: dict[int, torch.Tensor] = field(default_factory=dict)  # trunks, [tail, hidden]

    def take_over(self, row: int, other: Self, place: int) -> None:
        ours = self.groups.numbers[int(self.groups.prompt_of_row[row])]
        theirs = other.groups.numbers[int(other.groups.prompt_of_row[place])]
        if theirs in other.pictures:
            self.pictures[ours] = other.pictures[theirs]
        if theirs in other.prefixes:
            self.prefixes[ours] = other.prefixes[theirs]
        if place in other.tails:
            self.tails[row] = other.tails[place]

    def find_features(self, groups: Groups) -> Any | None:
        if any(number not in self.pictures for number in groups.numbers):
            return None
        found = [picture for number in groups.numbers for picture in self.pictures[number]]
        # Parts of shape [tokens, hidden] were never one tensor.
        levels = [
            torch.cat(list(parts)) if parts[0].ndim > 2 else tuple(parts)
            for parts in zip(*found, strict=True)
        ]
        return SimpleNamespace(pooler_output=levels[0], deepstack_features=levels[1:])

    def keep_features(self, groups: Groups, counts: Sequence[int], features: Any) -> None:
        """Remember what the vision tower returned for prompts' pictures, ``counts`` of each."""
        levels = [features.pooler_output, *(getattr(features, "deepstack_features", None) or [])]
        split = [one.split(1) if isinstance(one, torch.Tensor) else one for one in levels]
        parts = zip(*split, strict=True)
        pictures = iter([[part.detach() for part in picture] for picture in parts])
        for number, count in zip(groups.numbers, counts, strict=True):
            self.pictures[number] = [next(pictures) for _ in range(count)]

    def find_trunk(
        self, groups: Groups, rows: Sequence[int], *, prefix: int, tail: int
    ) -> Trunk | None:
        known = all(number in self.prefixes for number in groups.numbers)
        if not known or any(row not in self.tails for row in rows):
            return None
        prefixes = [_fit(self.prefixes[number], prefix, left=True) for number in groups.numbers]
        tails = [_fit(self.tails[row], tail, left=False) for row in rows]
        return Trunk(torch.stack(prefixes), torch.stack(tails))

    def keep_trunk(self, groups: Groups, rows: Sequence[int], trunk: Trunk) -> None:
        self.prefixes |= dict(zip(groups.numbers, trunk.prefixes, strict=True))
        self.tails |= dict(zip(rows, trunk.tails, strict=True))


def _fit(states: torch.Tensor, width: int, *, left: bool) -> torch.Tensor:
    states = states[-width:] if left else states[:width]
    missing = width - len(states)
    return functional.pad(states, (0, 0, missing, 0) if left else (0, 0, 0, missing))


def save_progress(trainer: Any, folder: Path) -> None:
    num_uses = trainer.args.steps_per_generation * trainer.num_iterations
    is_inside, kept = trainer._step % num_uses != 0, trainer._round
    packed = kept and {**vars(kept), "numbers": kept.groups.prompt_of_row}
    if packed is not None:
        del packed["groups"]
    state = {
        "step": trainer._step,
        "shares": trainer._shares,
        "compared": sorted(trainer._guard.compared),
        "buffered": trainer._buffered_inputs if is_inside else None,
        "round": packed if is_inside else None,
    }
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(state, folder / f"grpo_progress_{trainer.accelerator.process_index}.pt")


def load_progress(trainer: Any, folder: Path) -> None:
    """Put back what ``save_progress`` wrote; nothing but tensors and plain values is unpickled."""
    path = folder / f"grpo_progress_{trainer.accelerator.process_index}.pt"
    if not path.exists():
        raise TrainingError(
            f"{folder} does not say where the training stood",
            got=f"no {path.name}",
            fix="use as many processes as wrote it, or delete it to start the training again",
        )
    device = trainer.accelerator.device
    # Among several processes on a CPU Accelerate calls it cpu:0, which torch.load does not know.
    place = "cpu" if device.type == "cpu" else device
    try:
        state = torch.load(path, map_location=place, weights_only=True)
    except (UnpicklingError, RuntimeError) as error:
        raise TrainingError(
            f"{path} holds something else than tensors and plain values",
            got=str(error).splitlines()[0],
            fix="delete the checkpoint to start the training again",
        ) from error
    trainer._step, trainer._shares = state["step"], trainer._shares and state["shares"]
    trainer._guard.compared = set(state["compared"])
    trainer._buffered_inputs, packed = state["buffered"], state["round"]
    trainer._round = None if packed is None else Round(Groups.of(packed.pop("numbers")), **packed)
