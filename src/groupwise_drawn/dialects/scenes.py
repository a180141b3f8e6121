"""Scenes: an object before a background, and a stamp on those recorded since words were revised."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from PIL import Image, ImageDraw

from groupwise_drawn.dialects.vocabulary import (
    BACKGROUNDS,
    COLORS,
    SHAPES,
    TONES,
    Color,
    Pattern,
    Shape,
)

__all__ = ["SIDE", "Scene", "draw_scene", "plan_scene"]

SIDE = 128
_Ink = tuple[int, int, int]
_STEP = 16
_STAMP = (20, 20, 20)


@dataclass(frozen=True, slots=True)
class Scene:
    """What is drawn.

    Attributes:
        color: of the object: what is asked for.
        shape: of the object.
        tone: of the background.
        pattern: of the background.
        stamped: whether it bears a stamp.
    """

    color: Color
    shape: Shape
    tone: str
    pattern: Pattern
    stamped: bool

    @property
    def caption(self) -> str:
        """What is seen, in a few words."""
        stamp = " stamped" if self.stamped else ""
        return f"{self.color} {self.shape} {self.tone} {self.pattern}{stamp}"


def plan_scene(rng: random.Random, *, stamped: bool) -> Scene:
    """Draw what a scene is made of."""
    tone, pattern = rng.choice(BACKGROUNDS)
    return Scene(rng.choice(list(COLORS)), rng.choice(SHAPES), tone, pattern, stamped)


def draw_scene(scene: Scene, *, rng: random.Random) -> Image.Image:
    """Draw a scene; place, size and shade of the object and the shades behind stray.

    Returns:
        An RGB picture of 128 x 128 pixels.
    """
    base, ink = (_stray(color, rng, by=14) for color in TONES[scene.tone])
    picture = Image.new("RGB", (SIDE, SIDE), base)
    pen = ImageDraw.Draw(picture)
    _PAINT_BACKGROUND[scene.pattern](pen, rng.randrange(_STEP), ink)
    radius = rng.randint(26, 36)
    x, y = (rng.randint(radius + 4, SIDE - radius - 5) for _ in range(2))
    _paint_object(pen, scene.shape, (x, y), radius, _stray(COLORS[scene.color], rng, by=10))
    if scene.stamped:
        pen.ellipse((SIDE - 24, 4, SIDE - 5, 23), outline=_STAMP, fill=(250, 250, 250), width=5)
    return picture


def _stray(color: _Ink, rng: random.Random, *, by: int) -> _Ink:
    red, green, blue = (min(255, max(0, value + rng.randint(-by, by))) for value in color)
    return red, green, blue


def _paint_stripes(pen: Any, start: int, ink: _Ink) -> None:
    for x in range(start - 2 * _STEP, SIDE, 2 * _STEP):
        pen.rectangle((x, 0, x + _STEP - 1, SIDE), fill=ink)


def _paint_dots(pen: Any, start: int, ink: _Ink) -> None:
    for x in range(start - _STEP, SIDE, _STEP):
        for y in range(start - _STEP, SIDE, _STEP):
            pen.ellipse((x, y, x + 8, y + 8), fill=ink)


def _paint_checks(pen: Any, start: int, ink: _Ink) -> None:
    for x in range(start - 2 * _STEP, SIDE, _STEP):
        for y in range(start - 2 * _STEP, SIDE, _STEP):
            if (x // _STEP + y // _STEP) % 2:
                pen.rectangle((x, y, x + _STEP - 1, y + _STEP - 1), fill=ink)


_PAINT_BACKGROUND: dict[Pattern, Callable[[Any, int, _Ink], None]] = {
    "plain": lambda pen, start, ink: None,
    "stripes": _paint_stripes,
    "dots": _paint_dots,
    "checks": _paint_checks,
}


def _paint_object(pen: Any, shape: Shape, middle: tuple[int, int], radius: int, ink: _Ink) -> None:
    x, y = middle
    box = (x - radius, y - radius, x + radius, y + radius)
    third = radius // 3
    match shape:
        case "circle":
            pen.ellipse(box, fill=ink)
        case "square":
            pen.rectangle(box, fill=ink)
        case "triangle":
            pen.polygon([(x, y - radius), (x + radius, y + radius), (x - radius, y + radius)], ink)
        case "diamond":
            pen.polygon([(x, y - radius), (x + radius, y), (x, y + radius), (x - radius, y)], ink)
        case "cross":
            pen.rectangle((x - third, y - radius, x + third, y + radius), fill=ink)
            pen.rectangle((x - radius, y - third, x + radius, y + third), fill=ink)
        case "ring":
            pen.ellipse(box, outline=ink, width=radius // 2)
