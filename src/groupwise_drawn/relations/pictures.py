"""Pictures of scenes in two styles, and their depth pictures.

Flat: things of one colour and a darker one before a plain wall. Textured: things with light,
hatching and grain before a patterned wall with clutter. A scene has the same things in the same
places in both. Clutter is part of the wall: it has no depth of its own and covers no thing.
"""

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from groupwise.core import derive_seed
from groupwise_drawn.relations.scenes import Scene, Thing
from groupwise_drawn.relations.shapes import draw_silhouette
from groupwise_drawn.relations.vocabulary import COLORS, Style

__all__ = ["draw_depth", "draw_picture", "paint_things"]

_DARK = 0.6
_NEAR = 255
_Ink = tuple[int, int, int]
# No thing has such colours: each of them differs from those of things in some channel.
_FLAT_WALLS: tuple[_Ink, ...] = ((238, 236, 230), (214, 224, 236), (222, 234, 216))
_WALLS: tuple[tuple[_Ink, _Ink], ...] = (
    ((196, 176, 158), (166, 150, 138)),
    ((158, 170, 178), (130, 142, 154)),
    ((178, 184, 168), (150, 156, 142)),
)
_CLUTTER: tuple[_Ink, ...] = ((140, 128, 120), (186, 178, 170), (122, 132, 140), (206, 200, 190))


def draw_picture(scene: Scene, *, style: Style) -> Image.Image:
    """Return the RGB picture of a scene; the same scene gives the same picture."""
    return paint_things(scene.layers, side=scene.side, seed=scene.seed, style=style)


def paint_things(things: Sequence[Thing], *, side: int, seed: int, style: Style) -> Image.Image:
    """Return an RGB picture of things, the first behind the others."""
    rng = random.Random(derive_seed(seed, "wall"))
    picture = _paint_wall(side, rng) if style == "textured" else _paint_flat_wall(side, rng)
    for thing in things:
        outline = draw_silhouette(thing.kind, *thing.size)
        inks = np.where(np.asarray(outline.details)[..., None], _DARK, 1.0) * COLORS[thing.color]
        if style == "textured":
            inks = _texture(inks, derive_seed(seed, "texture", thing.kind))
        picture.paste(_to_image(inks), thing.box, outline.mask)
    return picture


def draw_depth(scene: Scene) -> Image.Image:
    """Return the depth picture, 8-bit grey: wall 0, the thing behind 128, the one in front 255."""
    depth = Image.new("L", (scene.side, scene.side), 0)
    for ink, thing in zip((_NEAR // 2 + 1, _NEAR), scene.layers, strict=True):
        depth.paste(ink, thing.box, draw_silhouette(thing.kind, *thing.size).mask)
    return depth


def _paint_flat_wall(side: int, rng: random.Random) -> Image.Image:
    return Image.new("RGB", (side, side), rng.choice(_FLAT_WALLS))


def _paint_wall(side: int, rng: random.Random) -> Image.Image:
    """Return a wall with stripes or checks, clutter, light from one side, and grain."""
    base, ink = rng.choice(_WALLS)
    wall = Image.new("RGB", (side, side), base)
    pen = ImageDraw.Draw(wall)
    step = max(4, side // rng.randint(8, 16))
    is_checked = rng.random() < 0.5
    for x in range(0, side, step):
        for y in range(0, side, step):
            if (x // step + (y // step if is_checked else 0)) % 2:
                pen.rectangle((x, y, x + step - 1, y + step - 1), fill=ink)
    for _ in range(rng.randint(6, 12)):
        _paint_clutter(pen, side, rng)
    return _to_image(_texture(np.asarray(wall, dtype=float), derive_seed(rng.random().hex())))


def _paint_clutter(pen: Any, side: int, rng: random.Random) -> None:
    """Paint a blot, a bar or a line that looks like no thing."""
    x, y = rng.randrange(side), rng.randrange(side)
    width, height = (rng.randint(side // 20, side // 6) for _ in range(2))
    ink = rng.choice(_CLUTTER)
    match rng.choice(["blot", "bar", "line"]):
        case "blot":
            pen.ellipse((x, y, x + width, y + height), fill=ink)
        case "bar":
            pen.rectangle((x, y, x + width, y + height // 3), fill=ink)
        case _:
            pen.line((x, y, x + 2 * width, y - height), fill=ink, width=max(1, side // 50))


def _texture(inks: Any, seed: int) -> Any:
    """Return colours with light that falls off, hatching and grain."""
    rng: Any = np.random.default_rng(seed)
    height, width = len(inks), len(inks[0])
    rows, columns = np.arange(height)[:, None], np.arange(width)
    light = 1.08 - 0.25 * (rows + columns) / (height + width)
    hatching = np.where((rows + rng.integers(1, 3) * columns) % rng.integers(4, 8) == 0, 0.9, 1.0)
    return inks * (light * hatching)[..., None] + rng.normal(0, 4, inks.shape)


def _to_image(inks: Any) -> Image.Image:
    return Image.fromarray(np.clip(np.rint(inks), 0, 255).astype(np.uint8), "RGB")
