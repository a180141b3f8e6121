"""Prompts made ready in any thread, with pictures within a pixel limit, and batches of them."""

import copy
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from queue import Empty, SimpleQueue
from typing import Any

import torch
from PIL import Image, ImageOps

from groupwise.core import (
    DataError,
    Example,
    Picture,
    convert_picture,
    open_lazily,
    wait_to_decode,
)
from groupwise.inference.chat import read_picture_bytes
from groupwise.inference.streaming.pictures import PictureMemory, SeenPicture, write_tokens
from groupwise.inference.streaming.work import Failure, WorkItem
from groupwise.models.policy import Policy

_REDUCING_GAP = 2.0


def open_limited(picture: Picture, max_pixels: int | None) -> Image.Image:
    """Return a picture as RGB, upright, with at most ``max_pixels`` pixels.

    A picture within the limit is just decoded. A JPEG beyond it is decoded at a half, a quarter or
    an eighth of its size where that is enough. Of pictures that stay large, one at a time is.
    """
    with (
        open_lazily(picture.path, read_picture_bytes(picture)) as opened,
        wait_to_decode(_reduce_on_decoding(opened, max_pixels)),
    ):
        return _decode(opened, max_pixels)


def measure_example(example: Example, max_pixels: int | None) -> float:
    """Return a number that grows with the tokens of a prompt; for sorting only.

    Pictures are measured by their headers, in units of about a token; unreadable ones are 0.
    """
    num_characters = sum(len(message.text) for message in example.prompt)
    return num_characters / 2 + sum(_count_pixels(p, max_pixels) for p in example.pictures) / 784


def is_beyond(picture: Picture, max_pixels: int | None) -> bool:
    """Say whether a picture has more pixels than allowed; not if it cannot be read."""
    return max_pixels is not None and _count_pixels(picture, None) > max_pixels


def fit_size(size: tuple[int, int], max_pixels: int | None) -> tuple[int, int]:
    """Return width and height of the same proportion with at most ``max_pixels`` pixels."""
    width, height = size
    if max_pixels is None or width * height <= max_pixels:
        return size
    scale = (max_pixels / (width * height)) ** 0.5
    width, height = max(1, int(width * scale)), max(1, int(height * scale))
    width = min(width, max_pixels)
    return width, min(height, max_pixels // width)


def _reduce_on_decoding(opened: Image.Image, max_pixels: int | None) -> int:
    """Let a JPEG be decoded smaller; return the pixels that decoding holds in memory."""
    num_pixels = opened.size[0] * opened.size[1]
    width, height = fit_size(opened.size, max_pixels)
    if (width, height) != opened.size:
        opened.draft(None, (int(width * _REDUCING_GAP), int(height * _REDUCING_GAP)))
    is_whole = bool(opened.info.get("progressive"))
    return num_pixels if is_whole else opened.size[0] * opened.size[1]


def _decode(opened: Image.Image, max_pixels: int | None) -> Image.Image:
    opened.load()
    if opened.mode in ("RGB", "L") and not opened.has_transparency_data:
        _shrink(opened, max_pixels)
    upright = convert_picture(ImageOps.exif_transpose(opened))
    _shrink(upright, max_pixels)
    return upright


def _shrink(picture: Image.Image, max_pixels: int | None) -> None:
    size = fit_size(picture.size, max_pixels)
    if size != picture.size:
        picture.thumbnail(size, Image.Resampling.LANCZOS, reducing_gap=_REDUCING_GAP)


@lru_cache(maxsize=65_536)
def _count_pixels(picture: Picture, max_pixels: int | None) -> int:
    try:
        with open_lazily(picture.path) as opened:
            width, height = opened.size
    except DataError:
        return 0
    return width * height if max_pixels is None else min(max_pixels, width * height)


_PER_TOKEN = ("input_ids", "attention_mask", "mm_token_type_ids", "token_type_ids")


@dataclass(frozen=True, slots=True)
class Encoded:
    """A prompt as the model's inputs, a batch of one row.

    Attributes:
        number: of the item.
        id: of its example.
        inputs: tensors by name.
        pictures: whose features stand for the pixels, in order; empty if pixels are among the
            inputs.
    """

    number: int
    id: str
    inputs: Mapping[str, Any]
    pictures: tuple[SeenPicture, ...] = ()

    @property
    def num_tokens(self) -> int:
        """Length of the prompt, pictures included."""
        return int(self.inputs["input_ids"].shape[-1])


class Encoder:
    """Makes prompts ready in several threads at once.

    A processor must not be used by two threads at a time, so each call takes a copy that is free;
    there are as many copies as there were calls at once.

    Args:
        policy: whose prompts they are.
        memory: of pictures; None: each prompt has the pixels of its own.
    """

    def __init__(self, policy: Policy, memory: PictureMemory | None = None) -> None:
        self.policy = policy
        self.memory = memory
        self._free: SimpleQueue[Policy] = SimpleQueue()
        self._copying = threading.Lock()

    def encode(
        self, item: WorkItem, *, max_pixels: int | None, max_new_tokens: int
    ) -> Encoded | Failure:
        """Return the inputs of an item, or why there are none."""
        policy = self._take()
        try:
            encoded = self._encode(policy, item, max_pixels)
        except DataError as error:
            return Failure("picture", str(error))
        except MemoryError:
            return Failure("memory", "out of memory while its pictures were decoded")
        finally:
            self._free.put(policy)
        return _check_length(encoded, policy.max_tokens, max_new_tokens) or encoded

    def _encode(self, policy: Policy, item: WorkItem, max_pixels: int | None) -> Encoded:
        text, shown = policy.render_prompt(item.example), item.example.pictures
        try:
            if self.memory is not None and shown:
                seen = tuple(self._find(policy, picture, max_pixels) for picture in shown)
                inputs = write_tokens(policy.processor, text, [picture.grid for picture in seen])
                return Encoded(item.number, item.example.id, inputs, seen)
            named = {"images": [[open_limited(one, max_pixels) for one in shown]]} if shown else {}
            inputs = dict(policy.processor(text=[text], return_tensors="pt", **named))
        except ValueError as error:
            raise DataError(f"the pictures cannot be used ({error})") from error
        return Encoded(item.number, item.example.id, inputs)

    def _find(self, policy: Policy, picture: Picture, max_pixels: int | None) -> SeenPicture:
        assert self.memory is not None
        return self.memory.find(
            (picture.digest, max_pixels),
            lambda: policy.processor.image_processor(
                images=[open_limited(picture, max_pixels)], return_tensors="pt"
            ),
        )

    def _take(self) -> Policy:
        try:
            return self._free.get_nowait()
        except Empty:
            with self._copying:
                return replace(self.policy, processor=copy.deepcopy(self.policy.processor))


def collate(rows: Sequence[Mapping[str, Any]], *, pad_token_id: int) -> dict[str, Any]:
    """Return rows as one batch: token by token padded on the left, all else one after another."""
    length = max(int(row["input_ids"].shape[-1]) for row in rows)
    names = dict.fromkeys(name for row in rows for name in row)
    batch: dict[str, Any] = {}
    for name in names:
        parts = [row[name] for row in rows if name in row]
        if name in _PER_TOKEN:
            fill = pad_token_id if name == "input_ids" else 0
            parts = [_pad(part, length, fill) for part in parts]
        batch[name] = torch.cat(parts)
    return batch


def _check_length(encoded: Encoded, limit: int | None, max_new_tokens: int) -> Failure | None:
    if limit is None or encoded.num_tokens + max_new_tokens <= limit:
        return None
    return Failure(
        "too_long",
        f"the prompt has {encoded.num_tokens} tokens and the answer up to {max_new_tokens}; "
        f"the model takes {limit} together",
    )


def _pad(part: torch.Tensor, length: int, fill: int) -> torch.Tensor:
    return torch.nn.functional.pad(part, (length - part.shape[-1], 0), value=fill)
