"""From a drawn picture to a photo: the view point, the light, and the grain of the sensor."""

import random

import numpy as np
from PIL import Image, ImageFilter

__all__ = ["take_photo"]

_GRAIN_SIDE = 512
_GRAIN = np.random.default_rng(0).normal(size=(_GRAIN_SIDE, _GRAIN_SIDE, 3)).astype(np.float32)


def take_photo(
    image: Image.Image, *, rng: random.Random, size: tuple[int, int], variety: float
) -> Image.Image:
    """Return the picture as a camera would give it: a little askew, lit from a side, grainy.

    Args:
        image: what is in front of the camera, RGB.
        rng: decides the view point, the light and the grain.
        size: width and height of the photo in pixels.
        variety: in [0, 1]; 0 gives the picture itself, resized.
    """
    photo = _pick_view(image, rng, size, variety)
    if rng.random() < 0.3 * variety:
        photo = photo.filter(ImageFilter.BoxBlur(size[0] / 400))
    return _light(photo, rng, variety)


def _pick_view(
    image: Image.Image, rng: random.Random, size: tuple[int, int], variety: float
) -> Image.Image:
    """Look at a slightly crooked quarter of a frame inside the picture."""
    width, height = image.size
    reach = 0.05 * variety

    def inset(length: int) -> float:
        return length * rng.uniform(0, reach)

    corners = (
        *(inset(width), inset(height)),
        *(inset(width), height - inset(height)),
        *(width - inset(width), height - inset(height)),
        *(width - inset(width), inset(height)),
    )
    return image.transform(size, Image.Transform.QUAD, corners, Image.Resampling.BILINEAR)


def _light(photo: Image.Image, rng: random.Random, variety: float) -> Image.Image:
    pixels = np.asarray(photo, dtype=np.float32)
    height, width = pixels.shape[:2]
    gain = 1 + rng.uniform(-0.22, 0.12) * variety
    warmth = rng.uniform(-0.07, 0.07) * variety
    tones = np.array([gain * (1 + warmth), gain, gain * (1 - warmth)], dtype=np.float32)
    slope_x, slope_y = (rng.uniform(-0.3, 0.3) * variety for _ in range(2))
    across = np.linspace(-slope_x / 2, slope_x / 2, width, dtype=np.float32)
    down = np.linspace(-slope_y / 2, slope_y / 2, height, dtype=np.float32)
    lit = pixels * tones * (1 + down[:, None, None] + across[None, :, None])
    lit += _pick_grain(rng, height, width) * (rng.uniform(2, 10) * variety)
    return Image.fromarray(np.clip(lit, 0, 255).astype(np.uint8))


def _pick_grain(rng: random.Random, height: int, width: int) -> np.ndarray:
    """Return grain for a photo: a stored tile, repeated where the photo is larger."""
    top, left = rng.randrange(_GRAIN_SIDE), rng.randrange(_GRAIN_SIDE)
    rows = np.arange(top, top + height) % _GRAIN_SIDE
    columns = np.arange(left, left + width) % _GRAIN_SIDE
    return _GRAIN[rows[:, None], columns[None, :]]
