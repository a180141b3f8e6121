"""What one round of sampling and its updates computes once, and where a training stands inside it.

Transformers' Trainer keeps weights, optimizer and generators; what follows from them only at the
start of a round is written beside a checkpoint. Kept states are not computed again: sampling made
them token by token, and another pass would round differently.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from pickle import UnpicklingError
from types import SimpleNamespace
from typing import Any, Self

import torch
from torch.nn import functional

from groupwise.core import TrainingError
from groupwise.training.fast.groups import Groups
from groupwise.training.fast.shared import Trunk


@dataclass
class Round:
    """One batch of completions and what its passes share.

    Attributes:
        groups: of all rows, in the order in which they were sampled.
        pictures: features of each prompt's pictures: pooled, then one for each deepstack level.
        prefixes: trunk of each prompt without padding, shape [prefix, hidden].
        tails: trunk of each row, shape [tail, hidden].
    """

    groups: Groups
    pictures: dict[int, list[list[torch.Tensor]]] = field(default_factory=dict)
    prefixes: dict[int, torch.Tensor] = field(default_factory=dict)
    tails: dict[int, torch.Tensor] = field(default_factory=dict)

    def take_over(self, row: int, other: Self, place: int) -> None:
        """Remember of a row and its prompt what another round knows of its row at ``place``."""
        ours, theirs = self._find_number(row), other._find_number(place)
        if theirs in other.pictures:
            self.pictures[ours] = other.pictures[theirs]
        if theirs in other.prefixes:
            self.prefixes[ours] = other.prefixes[theirs]
        if place in other.tails:
            self.tails[row] = other.tails[place]

    def _find_number(self, row: int) -> int:
        return self.groups.numbers[int(self.groups.prompt_of_row[row])]

    def find_features(self, groups: Groups) -> Any | None:
        """Return the features of all pictures of these prompts, or None if one is unknown."""
        if any(number not in self.pictures for number in groups.numbers):
            return None
        found = [picture for number in groups.numbers for picture in self.pictures[number]]
        levels = [_join_features(level) for level in zip(*found, strict=True)]
        return SimpleNamespace(pooler_output=levels[0], deepstack_features=levels[1:])

    def keep_features(self, groups: Groups, counts: Sequence[int], features: Any) -> None:
        """Remember what the vision tower returned for the pictures of these prompts, in order.

        Args:
            groups: the prompts.
            counts: outputs of the tower for each.
            features: the outputs.
        """
        levels = [features.pooler_output, *(getattr(features, "deepstack_features", None) or [])]
        parts = zip(*map(_split_features, levels), strict=True)
        pictures = iter([[part.detach() for part in picture] for picture in parts])
        for number, count in zip(groups.numbers, counts, strict=True):
            self.pictures[number] = [next(pictures) for _ in range(count)]

    def find_trunk(
        self, groups: Groups, rows: Sequence[int], *, prefix: int, tail: int
    ) -> Trunk | None:
        """Return the trunk of these prompts and rows, padded to widths, or None."""
        known = all(number in self.prefixes for number in groups.numbers)
        if not known or any(row not in self.tails for row in rows):
            return None
        prefixes = [_fit(self.prefixes[number], prefix, left=True) for number in groups.numbers]
        tails = [_fit(self.tails[row], tail, left=False) for row in rows]
        return Trunk(torch.stack(prefixes), torch.stack(tails))

    def keep_trunk(self, groups: Groups, rows: Sequence[int], trunk: Trunk) -> None:
        """Remember the trunk of these prompts and rows."""
        self.prefixes |= dict(zip(groups.numbers, trunk.prefixes, strict=True))
        self.tails |= dict(zip(rows, trunk.tails, strict=True))


def _split_features(level: Any) -> Sequence[torch.Tensor]:
    """Return one part for each picture; of pictures in one tensor, parts with its dimensions."""
    return level.split(1) if isinstance(level, torch.Tensor) else level


def _join_features(parts: Sequence[torch.Tensor]) -> Any:
    """Return what was split: parts of shape [tokens, hidden] were never one tensor."""
    return torch.cat(list(parts)) if parts[0].ndim > 2 else tuple(parts)


def _fit(states: torch.Tensor, width: int, *, left: bool) -> torch.Tensor:
    """Cut padding off or add some, shape [width, hidden]; prompts are padded on the left."""
    states = states[-width:] if left else states[:width]
    missing = width - len(states)
    return functional.pad(states, (0, 0, missing, 0) if left else (0, 0, 0, missing))


def save_progress(trainer: Any, folder: Path) -> None:
    """Write what this process needs to go on after ``trainer``'s last micro-batch."""
    num_uses = trainer.args.steps_per_generation * trainer.num_iterations
    is_inside = trainer._step % num_uses != 0
    state = {
        "step": trainer._step,
        "shares": trainer._shares,
        "compared": sorted(trainer._guard.compared),
        "buffered": trainer._buffered_inputs if is_inside else None,
        "round": _pack(trainer._round) if is_inside else None,
        **trainer.save_more(),
    }
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(state, _find_file(trainer, folder))


def load_progress(trainer: Any, folder: Path) -> None:
    """Put back what ``save_progress`` wrote.

    Raises:
        TrainingError: if this process wrote nothing there, or something else.
    """
    path = _find_file(trainer, folder)
    if not path.exists():
        raise TrainingError(
            f"{folder} does not say where the training stood",
            got=f"no {path.name}",
            fix="use as many processes as wrote it, or delete it to start the training again",
        )
    state = _load_values(path, trainer.accelerator.device)
    trainer._step, trainer._shares = state["step"], trainer._shares and state["shares"]
    trainer._guard.compared = set(state["compared"])
    trainer._buffered_inputs, packed = state["buffered"], state["round"]
    trainer._round = None if packed is None else Round(Groups.of(packed.pop("numbers")), **packed)
    trainer.load_more(state)


def _load_values(path: Path, device: torch.device) -> dict[str, Any]:
    """Return the tensors and plain values of a file; nothing else is unpickled."""
    # Among several processes on a CPU Accelerate calls it cpu:0, which torch.load does not know.
    place = "cpu" if device.type == "cpu" else device
    try:
        return torch.load(path, map_location=place, weights_only=True)
    except (UnpicklingError, RuntimeError) as error:
        raise TrainingError(
            f"{path} holds something else than tensors and plain values",
            got=str(error).splitlines()[0],
            fix="delete the checkpoint to start the training again",
        ) from error


def _find_file(trainer: Any, folder: Path) -> Path:
    return folder / f"grpo_progress_{trainer.accelerator.process_index}.pt"


def _pack(kept: Round | None) -> dict[str, Any] | None:
    if kept is None:
        return None
    return {
        "numbers": kept.groups.prompt_of_row,
        "pictures": kept.pictures,
        "prefixes": kept.prefixes,
        "tails": kept.tails,
    }
