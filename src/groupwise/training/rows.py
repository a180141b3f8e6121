"""How batches of rows of supervised fine-tuning become tensors, the next one meanwhile.

Pictures are changed at random, each from its own seed and never from a global state.
"""

import random
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
from PIL import Image, ImageChops, ImageEnhance
from torch.nn.utils.rnn import pad_sequence

from groupwise.core import derive_seed, open_picture
from groupwise.models import TOKEN_TYPES, Policy, encode_words
from groupwise.training.settings import PictureAugmentation
from groupwise.training.sft_rows import SftRow


def augment_picture(
    picture: Image.Image, settings: PictureAugmentation, *, seed: int
) -> Image.Image:
    """Return a changed copy of an RGB picture with the same size."""
    rng = random.Random(seed)
    picture = _crop(picture, settings, rng)
    if rng.random() < settings.grayscale:
        picture = picture.convert("L").convert("RGB")
    for enhance, amount in (
        (ImageEnhance.Brightness, settings.brightness),
        (ImageEnhance.Contrast, settings.contrast),
        (ImageEnhance.Color, settings.saturation),
    ):
        factor = rng.uniform(1 - amount, 1 + amount)
        if amount:
            picture = enhance(picture).enhance(factor)
    return _turn_hue(picture, settings, rng)


def _crop(picture: Image.Image, settings: PictureAugmentation, rng: random.Random) -> Image.Image:
    width, height = picture.size
    left, right = (rng.uniform(0, settings.crop) * width for _ in range(2))
    top, bottom = (rng.uniform(0, settings.crop) * height for _ in range(2))
    move_x, move_y = (rng.uniform(-settings.shift, settings.shift) for _ in range(2))
    if not settings.crop and not settings.shift:
        return picture
    scale_x = (width - left - right) / width
    scale_y = (height - top - bottom) / height
    matrix = (scale_x, 0, left + move_x * width, 0, scale_y, top + move_y * height)
    return picture.transform(
        picture.size,
        Image.Transform.AFFINE,
        matrix,
        resample=Image.Resampling.BILINEAR,
        fillcolor=(128, 128, 128),
    )


def _turn_hue(
    picture: Image.Image, settings: PictureAugmentation, rng: random.Random
) -> Image.Image:
    turn = rng.uniform(-settings.hue, settings.hue)
    if not settings.hue:
        return picture
    hue, saturation, value = picture.convert("HSV").split()
    offset = Image.new("L", hue.size, round(turn * 256) % 256)
    turned = ImageChops.add_modulo(hue, offset)
    return Image.merge("HSV", (turned, saturation, value)).convert("RGB")


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
        ids = encode_words(tokenizer, row.target)
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
    zeros = [torch.zeros_like(target) for target in targets]
    joined |= {name: join(name, zeros, 0) for name in TOKEN_TYPES if name in inputs}
    labels = torch.full_like(joined["input_ids"], IGNORED)
    for row, length, target in zip(labels, lengths, targets, strict=True):
        row[length : length + len(target)] = target
    return joined | {"labels": labels}


Collate = Callable[[Sequence[int]], Any]


class ReadAhead:
    """Collates batches of consecutive places; the next one is begun when one is asked for.

    Pictures are decoded and scaled by libraries that let other threads run meanwhile. Another
    batch than the expected one is collated when it is asked for.

    Args:
        collate: makes a batch of the rows at these places; it is called by another thread, one
            call at a time.
        num_rows: places are below this.
        num_processes: that read batches of this size in turn.
    """

    def __init__(self, collate: Collate, *, num_rows: int, num_processes: int = 1) -> None:
        self.collate = collate
        self.num_rows = num_rows
        self.num_processes = num_processes
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="read-ahead")
        self._expected: tuple[list[int], Future[Any]] | None = None

    def __call__(self, places: Sequence[int]) -> Any:
        """Return the batch of these places; raises what collating it raised."""
        expected, self._expected = self._expected, None
        if expected is not None and expected[0] == list(places):
            batch = expected[1].result()
        else:
            batch = self._pool.submit(self.collate, places).result()
        start = places[-1] + 1 + (self.num_processes - 1) * len(places)
        coming = list(range(start, min(start + len(places), self.num_rows)))
        if coming:
            self._expected = coming, self._pool.submit(self.collate, coming)
        return batch
