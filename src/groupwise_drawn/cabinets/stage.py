"""The open cabinet that everything is drawn into, and the pieces that painters share."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image

from groupwise_drawn.cabinets.vocabulary import CabinetColor
from groupwise_drawn.desktops.geometry import Box
from groupwise_drawn.desktops.pen import Pen
from groupwise_drawn.desktops.theme import Color, mix, pick_palette, pick_theme

__all__ = ["Point", "Stage", "bend", "draw_bolt", "draw_cable", "draw_interior", "paste_turned"]

Point = tuple[float, float]

PAINTS: dict[CabinetColor, tuple[Color, Color]] = {
    "white": ((226, 228, 230), (176, 180, 184)),
    "black": ((46, 48, 54), (24, 25, 29)),
    "blue": ((58, 104, 176), (38, 68, 120)),
}
"""Frame and back wall by the cabinet's colour."""
STEEL: Color = (196, 200, 206)
_THEME = pick_theme(random.Random(0))
_PALETTE = pick_palette(_THEME, random.Random(0), tone="light")


@dataclass(frozen=True, slots=True)
class Stage:
    """A picture to draw on.

    Attributes:
        pen: draws on the whole picture; its unit is 1/224 of the width.
        rng: source of chance.
        color: of the cabinet.
        variety: in [0, 1]: how far places and colours stray.
    """

    pen: Pen
    rng: random.Random
    color: CabinetColor
    variety: float

    @classmethod
    def open(
        cls, size: tuple[int, int], rng: random.Random, color: CabinetColor, variety: float
    ) -> "Stage":
        """Return a stage on a new picture of that size in pixels."""
        image = Image.new("RGB", size)
        return cls(make_pen(image, rng, size[0] / 224), rng, color, variety)

    @property
    def box(self) -> Box:
        """The whole picture."""
        return Box(0, 0, *self.pen.image.size)

    @property
    def paint(self) -> Color:
        """Colour of the frame."""
        return PAINTS[self.color][0]

    @property
    def wall(self) -> Color:
        """Colour of the back wall."""
        return PAINTS[self.color][1]

    def at(self, x: float, y: float) -> Point:
        """Pixels of a point given in shares of width and height."""
        width, height = self.pen.image.size
        return x * width, y * height

    def area(self, left: float, top: float, right: float, bottom: float) -> Box:
        """Pixels of a box given in shares of width and height."""
        width, height = self.pen.image.size
        return Box(
            round(left * width), round(top * height), round(right * width), round(bottom * height)
        )

    def stray(self, reach: float) -> float:
        """A share between ``-reach`` and ``reach``, smaller where there is little variety."""
        return self.rng.uniform(-reach, reach) * self.variety

    def shade(self, color: Color, reach: float = 0.12) -> Color:
        """The colour, a little lighter or darker."""
        share = self.stray(reach)
        return mix(color, (255, 255, 255) if share > 0 else (0, 0, 0), abs(share))


def make_pen(image: Image.Image, rng: random.Random, unit: float) -> Pen:
    """Return a pen in neutral colours."""
    return Pen(image, rng, _THEME, _PALETTE, unit)


def draw_interior(stage: Stage) -> None:
    """Fill the picture with the inside of the cabinet: wall, shelves, frames with holes."""
    pen, rng = stage.pen, stage.rng
    wall = stage.shade(stage.wall)
    pen.fill(stage.box, wall)
    for share in (0.16, 0.5, 0.86):
        y = share + stage.stray(0.04)
        pen.fill(stage.area(0, y, 1, y + 0.012), mix(wall, (0, 0, 0), 0.25))
    paint = stage.shade(stage.paint, 0.08)
    width = 0.09 + stage.stray(0.015)
    for left, right in ((0.0, width), (1 - width, 1.0)):
        frame = stage.area(left, 0, right, 1)
        pen.fill(frame, paint)
        inner = frame.cut_right(pen.px(2))[0] if left == 0 else frame.cut_left(pen.px(2))[0]
        pen.fill(inner, mix(paint, (0, 0, 0), 0.35))
        x = (frame.left + frame.right) / 2
        step = stage.box.height / 11
        start = rng.uniform(0, step)
        for number in range(12):
            pen.disc((x, start + number * step), pen.px(1.6), (30, 30, 34))


def draw_bolt(pen: Pen, center: Point, radius: float, color: Color = STEEL) -> None:
    """Draw a bolt's head with its slot; ``radius`` in units."""
    x, y = center
    size = pen.px(radius)
    pen.disc(center, size, mix(color, (0, 0, 0), 0.55))
    pen.disc(center, size * 0.8, color)
    width = max(1, size // 3)
    pen.draw.line((x - size * 0.5, y, x + size * 0.5, y), fill=(70, 72, 78), width=width)


def bend(points: Sequence[Point], num_points: int = 28) -> list[Point]:
    """Return points of the Bézier curve with these control points."""
    degree = len(points) - 1
    weights = [math.comb(degree, k) for k in range(degree + 1)]
    curve: list[Point] = []
    for step in range(num_points):
        t = step / (num_points - 1)
        shares = [w * t**k * (1 - t) ** (degree - k) for k, w in enumerate(weights)]
        x = sum(share * point[0] for share, point in zip(shares, points, strict=True))
        y = sum(share * point[1] for share, point in zip(shares, points, strict=True))
        curve.append((x, y))
    return curve


def draw_cable(pen: Pen, curve: Sequence[Point], color: Color, width: float) -> None:
    """Draw a round cable along a curve; ``width`` in units."""
    wide = pen.px(width)
    flat = [value for point in curve for value in point]
    pen.draw.line(flat, fill=mix(color, (0, 0, 0), 0.5), width=wide + pen.px(1), joint="curve")
    pen.draw.line(flat, fill=color, width=wide, joint="curve")
    light = [value for x, y in curve for value in (x - wide * 0.2, y)]
    pen.draw.line(light, fill=mix(color, (255, 255, 255), 0.35), width=max(1, wide // 4))


def paste_turned(stage: Stage, face: Image.Image, center: Point, angle: float) -> None:
    """Paste a picture turned by ``angle`` degrees against the clock around its centre."""
    mask = Image.new("L", face.size, 255)
    if angle == 180:
        face = face.transpose(Image.Transpose.ROTATE_180)
    elif angle:
        face = face.rotate(angle, Image.Resampling.BILINEAR, expand=True)
        mask = mask.rotate(angle, Image.Resampling.BILINEAR, expand=True)
    corner = (round(center[0] - face.width / 2), round(center[1] - face.height / 2))
    stage.pen.image.paste(face, corner, mask)
