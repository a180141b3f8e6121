"""Pictures that stand in many prompts: each goes through the vision tower once.

A few-shot prompt shows the same demonstrations again and again. What the tower makes of a picture
depends on nothing but the picture, so it is kept, and only the words are read anew.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers.modeling_outputs import BaseModelOutputWithPooling

from groupwise.core import DataError
from groupwise.models.policy import Policy

_MODEL_TYPES = ("qwen2_vl", "qwen2_5_vl")
_AT_ONCE = 16
_Key = tuple[str, int | None]


@dataclass(eq=False, slots=True)
class SeenPicture:
    """A picture before and after the vision tower.

    Attributes:
        key: digest and pixel limit.
        grid: patches in time, height and width, shape [1, 3].
        pixels: patches, shape [patches, values]; None once the features are there.
        features: shape [tokens, hidden]; None before.
    """

    key: _Key
    grid: torch.Tensor
    pixels: torch.Tensor | None
    features: torch.Tensor | None = None

    @property
    def num_bytes(self) -> int:
        """Of the features."""
        return 0 if self.features is None else self.features.nbytes


class PictureMemory:
    """Keeps features of pictures; those that were not used for longest go first.

    Args:
        policy: must not change while this is in use.
        max_mib: of features; those of a batch are there besides.
    """

    def __init__(self, policy: Policy, *, max_mib: float) -> None:
        self.policy = policy
        self._max_bytes = int(max_mib * 2**20)
        self._seen: OrderedDict[_Key, SeenPicture] = OrderedDict()
        self._num_bytes = 0
        self._lock = threading.Lock()

    def find(self, key: _Key, process: Callable[[], Any]) -> SeenPicture:
        """Return a picture, processed now if it is not known; called by any thread."""
        with self._lock:
            if key in self._seen:
                self._seen.move_to_end(key)
                return self._seen[key]
        inputs = process()
        found = SeenPicture(key, inputs["image_grid_thw"], inputs["pixel_values"])
        with self._lock:
            return self._seen.setdefault(key, found)

    @torch.no_grad()
    def look(self, pictures: Sequence[SeenPicture]) -> Any:
        """Return the features of a batch's pictures as the model's own encoder does."""
        # By identity: one that was dropped may have been processed again beside its former self.
        new = list(dict.fromkeys(one for one in pictures if one.features is None))
        model: Any = self.policy.model
        for start in range(0, len(new), _AT_ONCE):
            part = new[start : start + _AT_ONCE]
            pixels = torch.cat([one.pixels for one in part if one.pixels is not None])
            grids = torch.cat([one.grid for one in part])
            encoded = model.get_image_features(
                pixels.to(model.device), grids.to(model.device), return_dict=True
            )
            for picture, features in zip(part, encoded.pooler_output, strict=True):
                # A part of a tensor would keep the whole of it.
                picture.features, picture.pixels = features.clone(), None
                self._keep(picture)
        features: Any = tuple(one.features for one in pictures)
        return BaseModelOutputWithPooling(pooler_output=features)

    def _keep(self, picture: SeenPicture) -> None:
        with self._lock:
            former = self._seen.pop(picture.key, None)
            if former is not None and former is not picture:
                self._num_bytes -= former.num_bytes
            self._seen[picture.key] = picture
            self._num_bytes += picture.num_bytes
            while self._num_bytes > self._max_bytes:
                _, oldest = self._seen.popitem(last=False)
                self._num_bytes -= oldest.num_bytes


def open_memory(policy: Policy, *, max_mib: float) -> PictureMemory | None:
    """Return a memory, or None where nothing is to be kept or the model cannot be given features.

    Qwen2-VL and Qwen2.5-VL can.
    """
    if max_mib <= 0:
        return None
    can_take = policy.has_vision and policy.model.config.model_type in _MODEL_TYPES
    return PictureMemory(policy, max_mib=max_mib) if can_take else None


def write_tokens(processor: Any, text: str, grids: Sequence[torch.Tensor]) -> dict[str, Any]:
    """Return the inputs of a prompt without its pixels, as the processor writes them.

    Args:
        processor: a ``PictureProcessor``.
        text: with one placeholder for each picture.
        grids: of the pictures, each of shape [1, 3].
    """
    first, *rest = text.split(processor.image_token)
    if len(rest) != len(grids):
        raise DataError("a prompt has other placeholders than pictures", got=len(rest))
    merged = processor.image_processor.merge_size**2
    shown = [processor.image_token * (int(grid.prod()) // merged) for grid in grids]
    written = first + "".join(map("".join, zip(shown, rest, strict=True)))
    inputs = dict(processor.tokenizer([written], return_tensors="pt"))
    types = (inputs["input_ids"] == processor.image_token_id).long()
    return {**inputs, "mm_token_type_ids": types, "image_grid_thw": torch.cat(list(grids))}
