"""Every picture of a round goes through the image processor once."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from PIL.Image import Image

Processed = tuple[torch.Tensor, torch.Tensor]


@contextmanager
def process_pictures_once(processor: Any) -> Iterator[None]:
    """Within this context equal pictures are processed once.

    Args:
        processor: of a policy whose pictures become rows of patches and their grids (Qwen-VL);
            others, and tokenizers, are left as they are.
    """
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
    """An image processor that knows what it made of a picture before."""

    def __init__(self, processor: Any) -> None:
        self.processor = processor
        self.known: dict[bytes, Processed] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.processor, name)

    def __call__(self, images: Any, **named: Any) -> Any:
        """Return patches and grids of all pictures in order; only Pillow's are remembered."""
        from transformers import BatchFeature

        flat = list(_flatten(images))
        if not all(isinstance(picture, Image) for picture in flat):
            return self.processor(images, **named)
        distinct = {id(picture): picture for picture in flat}
        keys = {place: _digest(picture) for place, picture in distinct.items()}
        new = {keys[place]: p for place, p in distinct.items() if keys[place] not in self.known}
        if new:
            self._process(new, named)
        found = [self.known[keys[id(picture)]] for picture in flat]
        return BatchFeature(
            {
                "pixel_values": torch.cat([patches for patches, _ in found]),
                "image_grid_thw": torch.stack([grid for _, grid in found]),
            }
        )

    def _process(self, new: dict[bytes, Any], named: dict[str, Any]) -> None:
        output = self.processor(list(new.values()), **(named | {"return_tensors": "pt"}))
        grids = output["image_grid_thw"]
        patches = output["pixel_values"].split(grids.prod(-1).tolist())
        self.known |= dict(zip(new, zip(patches, grids, strict=True), strict=True))


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
