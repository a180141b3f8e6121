"""Pictures of rows, as processors of different families lay them out, each processed once a round.

A picture is a stretch of patches (Qwen-VL), an entry (LLaVA, Gemma 3) or some tiles (InternVL); or
a row has one entry for all (SmolVLM, Idefics3). As in TRL, the names of the fields tell which.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from PIL.Image import Image

from groupwise.core import TrainingError
from groupwise.models.processor import PICTURE_FIELDS


@dataclass(frozen=True)
class Pictures:
    """Pictures of rows; what belongs to a row is copied only when it is asked for."""

    fields: Mapping[str, torch.Tensor]  # of all rows, by name, each [entries, ...]
    sizes: Mapping[str, Sequence[int]]  # entries of each row in each field
    num_images: Sequence[int]  # pictures of each row
    rows: torch.Tensor | None = None  # which of the rows are meant; None: all

    @classmethod
    def of(
        cls,
        named: Mapping[str, Any],
        num_images: Sequence[int],
        num_tiles: Sequence[int] | None = None,
    ) -> Self | None:
        """Return the pictures among named values, or None if they are not those of the rows."""
        fields = {name: named[name] for name in PICTURE_FIELDS if named.get(name) is not None}
        sizes = {name: list(num_tiles or num_images) for name in fields}
        if "image_grid_thw" in fields:
            grids = fields["image_grid_thw"].split(sizes["image_grid_thw"])
            sizes["pixel_values"] = [int(grid.prod(-1).sum()) for grid in grids]
        elif "pixel_attention_mask" in fields:
            sizes = {name: [1] * len(num_images) for name in fields}
        is_whole = all(sum(sizes[name]) == len(values) for name, values in fields.items())
        return cls(fields, sizes, num_images) if is_whole else None

    def take(self, rows: torch.Tensor) -> Self:
        return replace(self, rows=rows if self.rows is None else self.rows[rows])

    def count(self) -> list[int]:
        return self._pick(self.num_images)

    def count_features(self) -> list[int]:
        """Return how many of the vision tower's outputs belong to each row that is meant."""
        name = "image_grid_thw" if "image_grid_thw" in self.fields else "pixel_values"
        return self._pick(self.sizes[name])

    def count_tiles(self) -> list[int] | None:
        """Return the entries of each row that is meant where a picture has several, as TRL does."""
        sizes = self.sizes["pixel_values"]
        has_tiles = set(self.fields) == {"pixel_values"} and sizes != list(self.num_images)
        return self._pick(sizes) if has_tiles else None

    def copy(self, name: str) -> torch.Tensor:
        if self.rows is None:
            return self.fields[name]
        parts = self.fields[name].split(list(self.sizes[name]))
        return torch.cat([parts[row] for row in self.rows.tolist()])

    def copy_fields(self) -> dict[str, torch.Tensor]:
        return {name: self.copy(name) for name in self.fields}

    def _pick(self, counts: Sequence[int]) -> list[int]:
        return list(counts) if self.rows is None else [counts[row] for row in self.rows.tolist()]


def find_pictures(
    fields: Mapping[str, torch.Tensor], num_images: Sequence[int], num_places: Sequence[int]
) -> Pictures:
    """Return what a processor made of pictures; ``num_places`` are each prompt's picture tokens."""
    pictures = Pictures.of(fields, num_images)
    if pictures is None and sum(num_places):
        # Every tile becomes as many tokens as any other.
        num_tiles = len(fields["pixel_values"])
        tiles = [count * num_tiles // sum(num_places) for count in num_places]
        pictures = Pictures.of(fields, num_images, tiles)
    if pictures is None:
        raise TrainingError(
            "pictures of prompts are laid out in a way that is not known",
            got=", ".join(f"{name} {list(values.shape)}" for name, values in fields.items()),
            fix="set speed.prefill_once to off",
        )
    return pictures


@contextmanager
def process_pictures_once(processor: Any) -> Iterator[None]:
    """Within this context equal pictures are processed once, by processors of Qwen-VL."""
    own = getattr(processor, "image_processor", None)
    if not type(own).__name__.startswith("Qwen2VL"):
        yield
        return
    processor.image_processor = _Remembering(own)
    try:
        yield
    finally:
        processor.image_processor = own


class _Remembering:
    """An image processor that knows what it made of a picture before; only Pillow's."""

    def __init__(self, processor: Any) -> None:
        self.processor = processor
        self.known: dict[bytes, tuple[torch.Tensor, torch.Tensor]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.processor, name)

    def __call__(self, images: Any, **named: Any) -> Any:
        from transformers import BatchFeature

        flat = list(_flatten(images))
        if not all(isinstance(picture, Image) for picture in flat):
            return self.processor(images, **named)
        distinct = {id(picture): picture for picture in flat}
        keys = {place: _digest(picture) for place, picture in distinct.items()}
        new = {keys[place]: p for place, p in distinct.items() if keys[place] not in self.known}
        if new:
            output = self.processor(list(new.values()), **(named | {"return_tensors": "pt"}))
            grids = output["image_grid_thw"]
            patches = output["pixel_values"].split(grids.prod(-1).tolist())
            self.known |= dict(zip(new, zip(patches, grids, strict=True), strict=True))
        found = [self.known[keys[id(picture)]] for picture in flat]
        joined = torch.cat([patches for patches, _ in found])
        grids = torch.stack([grid for _, grid in found])
        return BatchFeature({"pixel_values": joined, "image_grid_thw": grids})


def _flatten(images: Any) -> Iterator[Any]:
    if isinstance(images, list | tuple):
        for part in images:
            yield from _flatten(part)
    elif images is not None:
        yield images


def _digest(picture: Any) -> bytes:
    looks = f"{picture.mode} {picture.size} {picture.getpalette()}"
    digest = hashlib.blake2b(looks.encode(), digest_size=16)
    digest.update(picture.tobytes())
    return digest.digest()
