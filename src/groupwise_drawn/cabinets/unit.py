"""The unit (BBU): a box with a fan at its left, boards with ports, and an arrow that points up."""

import math
import random

from PIL import Image

from groupwise_drawn.cabinets.stage import Stage, draw_bolt, draw_interior, make_pen, paste_turned
from groupwise_drawn.desktops.geometry import Box
from groupwise_drawn.desktops.pen import Pen
from groupwise_drawn.desktops.theme import Color, mix

__all__ = ["draw_fan", "paint_unit", "pick_body"]

GREYS = {"white": (0.3, 0.45), "black": (0.62, 0.75), "blue": (0.68, 0.8)}


def pick_body(stage: Stage) -> Color:
    """A grey that stands out in the cabinet."""
    low, high = GREYS[stage.color]
    middle = (low + high) / 2
    level = round(255 * (middle + stage.stray((high - low) / 2)))
    return level, level, min(255, level + 6)


def draw_fan(pen: Pen, box: Box) -> None:
    """Draw a round fan behind its grille."""
    pen.fill(box, (34, 35, 40))
    center = ((box.left + box.right) / 2, (box.top + box.bottom) / 2)
    radius = min(box.width, box.height) * 0.46
    pen.disc(center, radius, (92, 95, 102))
    pen.disc(center, radius * 0.86, (52, 54, 60))
    turn = pen.rng.uniform(0, 1)
    for blade in range(6):
        angle = turn + blade * math.pi / 3
        tip = (center[0] + math.cos(angle) * radius, center[1] + math.sin(angle) * radius)
        pen.draw.line((*center, *tip), fill=(120, 124, 132), width=pen.px(2))
    pen.disc(center, radius * 0.28, (150, 154, 160))


def draw_board(pen: Pen, box: Box, body: Color) -> None:
    """Draw one board: a light and ports."""
    pen.frame(box, mix(body, (0, 0, 0), 0.5), mix(body, (255, 255, 255), 0.2))
    inner = box.inset(pen.px(2))
    lamp, ports = inner.cut_left(pen.px(4))
    pen.fill(lamp.middle(pen.px(2.5), pen.px(2.5)), (40, 220, 70))
    for port in ports.grid(5, 1, pen.px(2)):
        pen.fill(port.inset(0, max(0, (port.height - pen.px(5)) // 2)), (26, 28, 32))


def draw_unit_face(
    size: tuple[int, int], rng: random.Random, body: Color, unit: float
) -> Image.Image:
    """Return the front of a unit, the right way up; ``unit`` is pixels per unit of length."""
    face = Image.new("RGB", size, body)
    pen = make_pen(face, rng, unit)
    whole = Box(0, 0, *size)
    pen.frame(whole, mix(body, (0, 0, 0), 0.6))
    head, rest = whole.inset(pen.px(2)).cut_top(size[1] * 0.2)
    pen.text(head.cut_left(head.width * 0.3)[0].shift(pen.px(3), 0), "BBU", size=9, bold=True)
    draw_arrow(pen, head.cut_right(head.width * 0.14)[0])
    fan, boards = rest.cut_left(rest.height * 1.05)
    draw_fan(pen, fan.inset(pen.px(2)))
    for board in boards.inset(pen.px(2)).grid(2, 3, pen.px(2)):
        draw_board(pen, board, body)
    return face


def draw_arrow(pen: Pen, box: Box) -> None:
    """Draw the yellow sticker with an arrow that points up."""
    pen.fill(box, (250, 210, 40))
    x, half = (box.left + box.right) / 2, box.height * 0.4
    tip = [(x, box.top + 1), (x - half, box.top + box.height * 0.55)]
    pen.draw.polygon([*tip, (x + half, box.top + box.height * 0.55)], fill=(20, 20, 20))
    pen.fill(
        Box(round(x - half / 3), box.top + box.height // 2, round(x + half / 3), box.bottom - 1),
        (20, 20, 20),
    )


def paint_unit(stage: Stage, variant: str) -> Box:
    """Paint a unit between the frames: ``right``, ``inverted`` or ``tilted``; returns its box."""
    draw_interior(stage)
    pen = stage.pen
    x, y = 0.5 + stage.stray(0.04), 0.5 + stage.stray(0.1)
    half_w, half_h = 0.37 + stage.stray(0.03), 0.17 + stage.stray(0.02)
    area = stage.area(x - half_w, y - half_h, x + half_w, y + half_h)
    for level in (y - half_h - 0.2, y + half_h + 0.12):
        pen.fill(stage.area(0.12, level, 0.88, level + 0.07), mix(stage.wall, (0, 0, 0), 0.4))
    face = draw_unit_face((area.width, area.height), stage.rng, pick_body(stage), pen.unit)
    angle = {"right": 0.0, "inverted": 180.0}.get(variant)
    if angle is None:
        angle = stage.rng.choice((-1, 1)) * stage.rng.uniform(13, 19)
    draw_ears(stage, area, skewed=variant == "tilted")
    center = ((area.left + area.right) / 2, (area.top + area.bottom) / 2)
    paste_turned(stage, face, center, angle)
    return area


def draw_ears(stage: Stage, area: Box, *, skewed: bool) -> None:
    """Draw the brackets at both sides; those of a skewed unit are empty."""
    pen = stage.pen
    for left in (area.left - pen.px(12), area.right - pen.px(2)):
        ear = Box(left, area.top + area.height // 6, left + pen.px(14), area.bottom)
        ear = Box(ear.left, ear.top, ear.right, area.bottom - area.height // 6)
        pen.frame(ear, (70, 72, 78), (150, 154, 160))
        x = (ear.left + ear.right) / 2
        for y in (ear.top + pen.px(6), ear.bottom - pen.px(6)):
            if skewed:
                pen.disc((x, y), pen.px(2.5), (20, 20, 22))
            else:
                draw_bolt(pen, (x, y), 3.2)
