"""Small random changes of a picture that leave what it shows as it is."""

import random
from typing import TYPE_CHECKING

from pydantic import Field

from groupwise.core import Config

if TYPE_CHECKING:
    from PIL import Image


class PictureAugmentation(Config):
    """Small random changes of a picture, drawn again in every epoch from its own seed.

    Attributes:
        brightness, contrast, saturation: factors are drawn from [1 - x, 1 + x].
        hue: hue is turned by up to this share of the colour circle.
        crop: up to this share is cut off at each side.
        shift: the picture is moved by up to this share; what becomes free is grey.
        grayscale: probability that the picture loses its colours.
    """

    brightness: float = Field(default=0.2, ge=0, lt=1)
    contrast: float = Field(default=0.2, ge=0, lt=1)
    saturation: float = Field(default=0.2, ge=0, lt=1)
    hue: float = Field(default=0.0, ge=0, le=0.5)
    crop: float = Field(default=0.05, ge=0, lt=0.5)
    shift: float = Field(default=0.0, ge=0, lt=0.5)
    grayscale: float = Field(default=0.0, ge=0, le=1)


def augment_picture(
    picture: "Image.Image", settings: PictureAugmentation, *, seed: int
) -> "Image.Image":
    """Return a changed copy of an RGB picture with the same size."""
    from PIL import Image, ImageChops, ImageEnhance  # not for whoever only reads a config

    rng = random.Random(seed)
    width, height = picture.size
    # Everything is drawn whether it is used or not: a setting does not move what others draw.
    left, right = (rng.uniform(0, settings.crop) * width for _ in range(2))
    top, bottom = (rng.uniform(0, settings.crop) * height for _ in range(2))
    move_x, move_y = (rng.uniform(-settings.shift, settings.shift) for _ in range(2))
    if settings.crop or settings.shift:
        scale_x = (width - left - right) / width
        scale_y = (height - top - bottom) / height
        picture = picture.transform(
            picture.size,
            Image.Transform.AFFINE,
            (scale_x, 0, left + move_x * width, 0, scale_y, top + move_y * height),
            resample=Image.Resampling.BILINEAR,
            fillcolor=(128, 128, 128),
        )
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
    turn = rng.uniform(-settings.hue, settings.hue)
    if not settings.hue:
        return picture
    hue, saturation, value = picture.convert("HSV").split()
    turned = ImageChops.add_modulo(hue, Image.new("L", hue.size, round(turn * 256) % 256))
    return Image.merge("HSV", (turned, saturation, value)).convert("RGB")
