"""Pre-training of a tiny base's vision encoder: telling what is in pictures, without language.

A published vision-language model starts from an encoder that has seen millions of pictures. The one
of a tiny base has random weights, and what it learns to see it would have to learn through a
language model that cannot speak yet. Here it learns first, from what is known of the pictures of
the warm-up; linear heads on its picture tokens answer, and are thrown away.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from groupwise.core import (
    ModelError,
    Picture,
    ProgressLine,
    Say,
    derive_seed,
    keep_freed_memory,
    open_picture,
    seed_everything,
)
from groupwise.models.policy import Policy, load_policy
from groupwise.models.silence import silence_libraries

_HELD_OUT_SHARE = 0.05
_BATCH_SIZE = 32
_LEARNING_RATE = 1.5e-3
_NUM_WARMUP_STEPS = 50
_UNTOLD = -100


@dataclass(frozen=True, slots=True)
class SeenPicture:
    """A picture and what is known of it.

    Attributes:
        picture: to be looked at.
        facts: the answer in words to each question of that name; questions may be left out.
    """

    picture: Picture
    facts: Mapping[str, str]


def pretrain_vision(
    folder: Path,
    pictures: Sequence[SeenPicture],
    *,
    seed: int,
    epochs: int,
    say: Say = lambda _: None,
) -> dict[str, float]:
    """Teach the vision encoder and the aligner of a tiny base to tell facts, and keep them there.

    Each question is a classification among the answers that occur, by a linear head on the mean of
    the picture's tokens. AdamW, the rate falls from 1.5e-3 to 0.

    Args:
        folder: of a base with vision; its weights are replaced.
        pictures: of the warm-up; one in twenty is held out.
        seed: of the order, the heads and of what is held out.
        epochs: passes over the pictures.
        say: is told how far it is.

    Returns:
        By question, the share of the held-out pictures that it is answered right for; a question
        that none of them answers is left out.

    Raises:
        ModelError: if there are fewer than two pictures or no question has two answers.
    """
    keep_freed_memory()
    policy = load_policy(folder)
    names = sorted({name for one in pictures for name in one.facts})
    told = {name: {one.facts[name] for one in pictures if name in one.facts} for name in names}
    answers = {name: sorted(found) for name, found in told.items() if len(found) > 1}
    if len(pictures) < 2 or not answers:
        raise ModelError("nothing to teach a vision encoder", got=f"{len(pictures)} pictures")
    seed_everything(derive_seed(seed, "vision"))
    reader = _Reader(policy, pictures, answers)
    order = torch.randperm(len(pictures))
    num_held_out = max(1, round(len(pictures) * _HELD_OUT_SHARE))
    # Several threads add up the products of a batch of few pictures in another order than one.
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        _teach(reader, order[num_held_out:], epochs, say)
        rates = _rate(reader, order[:num_held_out])
    finally:
        torch.set_num_threads(num_threads)
    with silence_libraries():
        policy.model.save_pretrained(folder)
    return {name: rate for name, rate in zip(answers, rates, strict=True) if rate is not None}


class _Reader(torch.nn.Module):
    """The encoder with a head for each question, and pictures with their answers.

    Patches are held as bytes, which take a quarter of the memory.
    """

    def __init__(
        self, policy: Policy, pictures: Sequence[SeenPicture], answers: Mapping[str, list[str]]
    ) -> None:
        super().__init__()
        width = policy.model.config.get_text_config().hidden_size
        heads = {str(k): torch.nn.Linear(width, len(one)) for k, one in enumerate(answers.values())}
        self.encoder: Any = policy.model.model.visual.train()
        self.norm = torch.nn.LayerNorm(width)
        self.heads = torch.nn.ModuleDict(heads)
        self.processor = policy.processor.image_processor
        self.patches: list[Any] = []
        grids: list[Any] = []
        for one in pictures:
            made = self.processor(
                open_picture(one.picture), do_rescale=False, do_normalize=False, return_tensors="np"
            )
            values = made["pixel_values"]
            frames = values.reshape(len(values), 3, self.processor.temporal_patch_size, -1)
            self.patches.append(frames[:, :, 0].astype(np.uint8))  # frames of a still are one
            grids.append(made["image_grid_thw"])
        self.grids = torch.tensor(np.concatenate(grids))
        self.answers = torch.tensor(
            [
                [
                    found.index(v) if (v := one.facts.get(name)) is not None else _UNTOLD
                    for name, found in answers.items()
                ]
                for one in pictures
            ]
        )

    def take(self, chosen: Sequence[int]) -> torch.Tensor:
        """Return patches as the encoder takes them."""
        packed = torch.from_numpy(np.concatenate([self.patches[k] for k in chosen]))
        scales = (self.processor.image_mean, self.processor.image_std)
        mean, std = (torch.tensor(one)[:, None] for one in scales)
        frames = ((packed / 255 - mean) / std)[:, :, None]
        num_frames = self.processor.temporal_patch_size
        return frames.expand(-1, -1, num_frames, -1).reshape(len(frames), -1)

    def forward(self, batch: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return the logits (pictures, answers) and the right answers of each question."""
        grid = self.grids[batch.tolist()]
        tokens = self.encoder(self.take(batch.tolist()), grid_thw=grid).pooler_output
        counts = (grid.prod(-1) // self.encoder.spatial_merge_size**2).tolist()
        seen = self.norm(torch.stack([part.mean(0) for part in tokens.split(counts)]))
        logits = [head(seen) for head in self.heads.values()]
        return list(zip(logits, self.answers[batch].unbind(1), strict=True))


def _teach(reader: _Reader, order: torch.Tensor, epochs: int, say: Say) -> None:
    optimizer = torch.optim.AdamW(reader.parameters(), lr=_LEARNING_RATE, weight_decay=0.01)
    shuffled = [order[torch.randperm(len(order))] for _ in range(epochs)]
    batches = [part for one in shuffled for part in one.split(_BATCH_SIZE)]
    tell = ProgressLine("steps of the vision encoder", say)
    for step, batch in enumerate(batches):
        for group in optimizer.param_groups:
            rise = min(1.0, (step + 1) / _NUM_WARMUP_STEPS)
            group["lr"] = _LEARNING_RATE * rise * (1 - step / len(batches))
        losses = [
            torch.nn.functional.cross_entropy(logits, target, ignore_index=_UNTOLD, reduction="sum")
            / len(batch)
            for logits, target in reader(batch)
        ]
        optimizer.zero_grad()
        torch.stack(losses).sum().backward()
        optimizer.step()
        tell(step + 1, len(batches))


@torch.no_grad()
def _rate(reader: _Reader, held_out: torch.Tensor) -> list[float | None]:
    """Return the share of right answers to each question; None where none is told."""
    reader.eval()
    found = [reader(batch) for batch in held_out.split(_BATCH_SIZE)]
    rates = list[float | None]()
    for parts in zip(*found, strict=True):
        right = sum(int((logits.argmax(-1) == target).sum()) for logits, target in parts)
        told = sum(int((target != _UNTOLD).sum()) for _, target in parts)
        rates.append(right / told if told else None)
    return rates
