"""How a batch of rows of supervised fine-tuning becomes tensors."""

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from groupwise.core import derive_seed, open_picture
from groupwise.models import Policy
from groupwise.training.augmentation import augment_picture
from groupwise.training.settings import PictureAugmentation
from groupwise.training.sft_rows import SftRow

IGNORED = -100


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
        pictures = [self._open_pictures(*item) for item in scheduled]
        named = {"images": pictures} if any(pictures) else {}
        inputs = self.policy.processor(
            text=prompts, padding=True, padding_side="right", return_tensors="pt", **named
        )
        targets = [self.encode_target(row) for _, _, row in scheduled]
        padding_id = self.policy.tokenizer.pad_token_id
        return dict(inputs) | _append_targets(dict(inputs), targets, padding_id=padding_id)

    def encode_target(self, row: SftRow) -> torch.Tensor:
        """Return the token ids that are taught, shape [tokens]."""
        tokenizer = self.policy.tokenizer
        ids = tokenizer.encode(row.target, add_special_tokens=False)
        return torch.tensor([*ids, tokenizer.eos_token_id] if row.is_finished else ids)

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


def _append_targets(
    inputs: dict[str, torch.Tensor], targets: Sequence[torch.Tensor], *, padding_id: Any
) -> dict[str, torch.Tensor]:
    """Put target ids behind right-padded prompts and label them. Shapes [batch, tokens].

    Prompt and target are never tokenised together: a sampled answer starts on a token, too.
    """
    lengths = inputs["attention_mask"].sum(dim=1).tolist()

    def join(name: str, tails: Sequence[torch.Tensor], padding: int) -> torch.Tensor:
        heads = [row[:length] for row, length in zip(inputs[name], lengths, strict=True)]
        rows = [torch.cat(pair) for pair in zip(heads, tails, strict=True)]
        return pad_sequence(rows, batch_first=True, padding_value=padding)

    ones = [torch.ones_like(target) for target in targets]
    joined = {
        "input_ids": join("input_ids", targets, padding_id),
        "attention_mask": join("attention_mask", ones, 0),
    }
    if "mm_token_type_ids" in inputs:
        zeros = [torch.zeros_like(target) for target in targets]
        joined["mm_token_type_ids"] = join("mm_token_type_ids", zeros, 0)
    labels = torch.full_like(joined["input_ids"], IGNORED)
    for row, length, target in zip(labels, lengths, targets, strict=True):
        row[length : length + len(target)] = target
    return joined | {"labels": labels}
