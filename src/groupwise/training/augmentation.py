"""Random changes of pictures, each from its own seed and never from a global state."""

import random

from PIL import Image, ImageChops, ImageEnhance

from groupwise.training.settings import PictureAugmentation


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
