"""Photographs and drawings for screens: soft scenes painted small and enlarged.

They imitate the colours and masses of photos, not their detail.
"""

import math
import random
from collections.abc import Callable
from functools import lru_cache
from typing import Literal

from PIL import Image, ImageDraw, ImageFilter

from groupwise_drawn.desktops.theme import Color, mix, tint

__all__ = ["Kind", "paint_gradient", "paint_picture"]

Kind = Literal["landscape", "portrait", "object", "food", "city", "room", "abstract", "sea"]
Artist = Callable[[ImageDraw.ImageDraw, random.Random, int, int], None]

MAX_PAINTING = (160, 120)
SOFTEN = ImageFilter.BoxBlur(0.6)
GRAIN = 2  # final pixels per painted pixel, which makes the picture soft


def paint_gradient(
    corners: tuple[Color, Color, Color, Color], size: tuple[int, int]
) -> Image.Image:
    """Four corner colours blended over ``size`` (width, height) pixels."""
    small = Image.new("RGB", (2, 2))
    for index, color in enumerate(corners):
        small.putpixel((index % 2, index // 2), color)
    return small.resize((8, 6), Image.Resampling.BICUBIC).resize(size, Image.Resampling.BILINEAR)


def paint_picture(kind: Kind, rng: random.Random, size: tuple[int, int]) -> Image.Image:
    """Paint a picture of ``size`` (width, height) pixels; the generator decides its content."""
    width = min(MAX_PAINTING[0], max(8, size[0] // GRAIN))
    height = min(MAX_PAINTING[1], max(6, size[1] // GRAIN))
    low = tint(rng.random(), rng.uniform(0.1, 0.8), rng.uniform(0.25, 0.95))
    high = tint(rng.random(), rng.uniform(0.1, 0.6), rng.uniform(0.4, 1.0))
    image = Image.new("RGB", (1, 2), high)
    image.putpixel((0, 1), low)
    image = image.resize((width, height), Image.Resampling.BILINEAR)
    ARTISTS[kind](ImageDraw.Draw(image), rng, width, height)
    if width > 24:
        image = Image.blend(image.filter(SOFTEN), cut_grain(width, height), rng.uniform(0.01, 0.06))
    return image.resize(size, Image.Resampling.BILINEAR)


@lru_cache(maxsize=1)
def make_grain() -> Image.Image:
    """A fixed field of grey and coloured specks, as large as the largest painting."""
    return Image.frombytes(
        "RGB", MAX_PAINTING, random.Random(0).randbytes(3 * MAX_PAINTING[0] * MAX_PAINTING[1])
    )


def cut_grain(width: int, height: int) -> Image.Image:
    """The upper left part of the grain."""
    return make_grain().crop((0, 0, width, height))


def pick_color(rng: random.Random) -> Color:
    return tint(rng.random(), rng.uniform(0.2, 0.9), rng.uniform(0.2, 0.95))


def spread_circle(
    draw: ImageDraw.ImageDraw, center: tuple[float, float], radius: float, color: Color
) -> None:
    x, y = center
    draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=color)


def paint_landscape(draw: ImageDraw.ImageDraw, rng: random.Random, w: int, h: int) -> None:
    spread_circle(draw, (rng.uniform(0, w), h * rng.uniform(0.1, 0.4)), h * 0.07, (255, 240, 190))
    base, hue = rng.uniform(0.35, 0.6), rng.choice((0.3, 0.08, 0.58, rng.random()))
    for layer in range(3):
        color = tint(hue, rng.uniform(0.2, 0.7), 0.75 - 0.2 * layer)
        phase, waves = rng.uniform(0, 6), rng.uniform(0.5, 2.5)
        crest = [
            (x, h * (base + layer * 0.15 + 0.1 * math.sin(phase + waves * 6 * x / w)))
            for x in range(0, w + 4, 4)
        ]
        draw.polygon([*crest, (w, h), (0, h)], fill=color)


def paint_sea(draw: ImageDraw.ImageDraw, rng: random.Random, w: int, h: int) -> None:
    horizon = round(h * rng.uniform(0.35, 0.6))
    sea = tint(rng.uniform(0.48, 0.62), rng.uniform(0.4, 0.8), rng.uniform(0.5, 0.9))
    draw.rectangle((0, horizon, w, h), fill=sea)
    shore = round(h * rng.uniform(0.75, 0.95))
    sand = tint(0.1, rng.uniform(0.2, 0.5), 0.9)
    draw.polygon([(0, h), (0, shore), (w, shore - h // 8), (w, h)], fill=sand)
    for _ in range(5):
        y = rng.randint(horizon, max(horizon, shore - 1))
        x = rng.randint(0, w)
        draw.line((x, y, x + w // 6, y), fill=mix(sea, (255, 255, 255), 0.4))


def paint_portrait(draw: ImageDraw.ImageDraw, rng: random.Random, w: int, h: int) -> None:
    x, r = w * rng.uniform(0.4, 0.6), h * rng.uniform(0.16, 0.24)
    skin = tint(rng.uniform(0.04, 0.09), rng.uniform(0.3, 0.6), rng.uniform(0.45, 0.95))
    hair = tint(rng.uniform(0.01, 0.06), rng.uniform(0.2, 0.7), rng.uniform(0.08, 0.6))
    body = pick_color(rng)
    draw.ellipse((x - 2.2 * r, h * 0.62, x + 2.2 * r, h * 1.5), fill=body)
    spread_circle(draw, (x, h * 0.36), r * 1.15, hair)
    draw.ellipse((x - r * 0.85, h * 0.42 - r, x + r * 0.85, h * 0.42 + r), fill=skin)


def paint_object(draw: ImageDraw.ImageDraw, rng: random.Random, w: int, h: int) -> None:
    back = mix((255, 255, 255), pick_color(rng), rng.choice((0.0, 0.04, 0.12)))
    draw.rectangle((0, 0, w, h), fill=back)
    color, shape = pick_color(rng), rng.randrange(4)
    x0, y0, x1, y1 = w * 0.2, h * 0.15, w * 0.8, h * 0.85
    if shape == 0:
        draw.ellipse((x0, y0, x1, y1), fill=color)
        draw.ellipse(
            (x0 + w * 0.1, y0 + h * 0.1, x1 - w * 0.3, y1 - h * 0.4), fill=mix(color, back, 0.4)
        )
    elif shape == 1:
        draw.rectangle((w * 0.3, y0, w * 0.7, y1), fill=color)
        draw.rectangle((w * 0.36, h * 0.22, w * 0.64, h * 0.6), fill=mix(color, (0, 0, 0), 0.5))
    elif shape == 2:
        crown = [(w * 0.2, h * 0.3), (w * 0.4, y0), (w * 0.6, y0), (w * 0.8, h * 0.3)]
        draw.polygon(
            [*crown, (w * 0.68, h * 0.4), (w * 0.68, y1), (w * 0.32, y1), (w * 0.32, h * 0.4)],
            fill=color,
        )
    else:
        draw.polygon(
            [(x0, h * 0.7), (w * 0.5, h * 0.45), (x1, h * 0.6), (x1, y1), (x0, y1)], fill=color
        )
        draw.rectangle((x0, h * 0.8, x1, y1), fill=mix(color, (255, 255, 255), 0.7))


def paint_food(draw: ImageDraw.ImageDraw, rng: random.Random, w: int, h: int) -> None:
    r = min(w, h) * 0.45
    spread_circle(draw, (w / 2, h / 2), r, (238, 236, 230))
    for _ in range(12):
        angle, far = rng.uniform(0, 6.28), rng.uniform(0, r * 0.6)
        color = tint(rng.choice((0.02, 0.08, 0.12, 0.28)), 0.7, rng.uniform(0.4, 0.9))
        center = (w / 2 + far * math.cos(angle), h / 2 + far * math.sin(angle))
        spread_circle(draw, center, r * rng.uniform(0.12, 0.3), color)


def paint_city(draw: ImageDraw.ImageDraw, rng: random.Random, w: int, h: int) -> None:
    x, hue, value = 0, rng.random(), rng.uniform(0.2, 0.6)
    while x < w:
        wide, top = max(2, round(w * rng.uniform(0.05, 0.14))), round(h * rng.uniform(0.2, 0.7))
        draw.rectangle(
            (x, top, x + wide - 1, h), fill=tint(hue, 0.2, value * rng.uniform(0.6, 1.3) % 1)
        )
        for y in range(top + 2, h, 4):
            draw.line((x + 1, y, x + wide - 2, y), fill=tint(0.13, 0.4, rng.uniform(0.4, 0.95)))
        x += wide


def paint_room(draw: ImageDraw.ImageDraw, rng: random.Random, w: int, h: int) -> None:
    wall, floor = tint(rng.random(), 0.15, 0.85), tint(0.08, 0.5, rng.uniform(0.35, 0.7))
    draw.rectangle((0, 0, w, h), fill=wall)
    draw.rectangle((0, h * 0.7, w, h), fill=floor)
    draw.rectangle((w * 0.6, h * 0.12, w * 0.9, h * 0.45), fill=tint(0.55, 0.3, 0.95))
    bed = pick_color(rng)
    draw.rectangle((w * 0.1, h * 0.5, w * 0.6, h * 0.85), fill=mix(bed, (255, 255, 255), 0.6))
    draw.rectangle((w * 0.1, h * 0.65, w * 0.6, h * 0.85), fill=bed)


def paint_abstract(draw: ImageDraw.ImageDraw, rng: random.Random, w: int, h: int) -> None:
    for _ in range(8):
        center = (rng.uniform(0, w), rng.uniform(0, h))
        spread_circle(draw, center, rng.uniform(0.05, 0.35) * h, pick_color(rng))


ARTISTS: dict[Kind, Artist] = {
    "landscape": paint_landscape,
    "portrait": paint_portrait,
    "object": paint_object,
    "food": paint_food,
    "city": paint_city,
    "room": paint_room,
    "abstract": paint_abstract,
    "sea": paint_sea,
}
