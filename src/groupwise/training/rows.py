"""Rows of supervised fine-tuning and how a batch of them becomes tensors."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from groupwise.core import Example, derive_seed
from groupwise.models import Policy, open_picture
from groupwise.training.augmentation import augment_picture
from groupwise.training.settings import PictureAugmentation

IGNORED = -100


@dataclass(frozen=True)
class SftRow:
    """An example and the text the policy is taught to answer."""

    example: Example
    target: str


RowsOfEpoch = Callable[[int], Sequence[SftRow]]
"""Gives the rows of an epoch; the same number in each, deterministic."""


class RowCollator:
    """Turns scheduled rows into padded tensors; only target tokens carry a label.

    Args:
        policy: gives the processor and the end token.
        augmentation: random changes of pictures; None: none.
        seed: of the augmentation, together with the epoch and the row.
    """

    def __init__(
        self, policy: Policy, *, augmentation: PictureAugmentation | None, seed: int
    ) -> None:
        self.policy = policy
        self.augmentation = augmentation
        self.seed = seed

    def __call__(self, scheduled: Sequence[tuple[int, int, SftRow]]) -> dict[str, torch.Tensor]:
        """Return tensors for (epoch, index, row) triples; shapes [batch, tokens]."""
        prompts = [self.policy.render_prompt(row.example) for _, _, row in scheduled]
        end = self.policy.tokenizer.eos_token
        texts = [f"{p}{row.target}{end}" for p, (_, _, row) in zip(prompts, scheduled, strict=True)]
        pictures = [self._open_pictures(*item) for item in scheduled]
        named = {"images": pictures} if any(pictures) else {}
        inputs = self.policy.processor(
            text=texts, padding=True, padding_side="right", return_tensors="pt", **named
        )
        lengths = [
            len(self.policy.tokenizer.encode(f"{row.target}{end}", add_special_tokens=False))
            for _, _, row in scheduled
        ]
        inputs["labels"] = _label_targets(inputs["input_ids"], inputs["attention_mask"], lengths)
        return dict(inputs)

    def _open_pictures(self, epoch: int, index: int, row: SftRow) -> list[Any]:
        pictures = [open_picture(picture) for picture in row.example.pictures]
        if self.augmentation is None:
            return pictures
        return [
            augment_picture(
                picture, self.augmentation, seed=derive_seed(self.seed, epoch, index, number)
            )
            for number, picture in enumerate(pictures)
        ]


def _label_targets(ids: torch.Tensor, mask: torch.Tensor, lengths: Sequence[int]) -> torch.Tensor:
    """Keep the last ``lengths[i]`` real tokens of each row as labels. Shapes [batch, tokens]."""
    ends = mask.sum(dim=1, keepdim=True)
    starts = ends - torch.tensor(lengths).unsqueeze(1)
    positions = torch.arange(ids.shape[1]).unsqueeze(0)
    return ids.masked_fill((positions < starts) | (positions >= ends), IGNORED)
