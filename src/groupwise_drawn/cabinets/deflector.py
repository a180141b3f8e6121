"""The wind deflector: a slotted plate below a tray of fans, fixed level between the frames."""

from PIL import Image

from groupwise_drawn.cabinets.stage import (
    Stage,
    draw_bolt,
    draw_interior,
    make_pen,
    paste_turned,
)
from groupwise_drawn.cabinets.unit import draw_fan, pick_body
from groupwise_drawn.desktops.geometry import Box
from groupwise_drawn.desktops.theme import Color, mix

__all__ = ["paint_deflector"]

ZINC: Color = (205, 208, 204)


def paint_deflector(stage: Stage, variant: str) -> Box:
    """Paint fans and what is below them: the plate (``right``, ``crooked``) or a hole (``absent``).

    Returns the box of the plate or the hole.
    """
    draw_interior(stage)
    pen = stage.pen
    top = 0.06 + stage.stray(0.04)
    tray = stage.area(0.13, top, 0.87, top + 0.32)
    body = pick_body(stage)
    pen.frame(tray, mix(body, (0, 0, 0), 0.6), body)
    for fan in tray.inset(pen.px(5)).grid(3, 1, pen.px(5)):
        draw_fan(pen, fan.middle(fan.height, fan.height))
    level = 0.66 + stage.stray(0.05)
    hole = stage.area(0.1, level - 0.2, 0.9, level + 0.2)
    draw_hole(stage, hole)
    if variant != "absent":
        plate = draw_plate(stage, (hole.width + pen.px(12), round(hole.height * 0.86)))
        angle = 0.0
        if variant == "crooked":
            angle = stage.rng.choice((-1, 1)) * stage.rng.uniform(11, 17)
        paste_turned(stage, plate, ((hole.left + hole.right) / 2, stage.at(0, level)[1]), angle)
    return hole


def draw_hole(stage: Stage, hole: Box) -> None:
    """Draw the dark opening that a deflector covers, with the rims it is screwed to."""
    pen = stage.pen
    for row, part in enumerate(hole.grid(1, 6)):
        pen.fill(part, mix((6, 6, 8), (34, 34, 40), row / 6))
    for left in (hole.left - pen.px(9), hole.right - pen.px(3)):
        rim = Box(left, hole.top, left + pen.px(12), hole.bottom)
        pen.frame(rim, (60, 60, 66), mix(stage.paint, (120, 120, 120), 0.5))
        for y in (hole.top + pen.px(10), hole.bottom - pen.px(10)):
            pen.disc(((rim.left + rim.right) / 2, y), pen.px(3), (10, 10, 12))


def draw_plate(stage: Stage, size: tuple[int, int]) -> Image.Image:
    """Return the plate: two rows of slanted slots, a fold at the top, a bolt in each corner."""
    zinc = stage.shade(ZINC)
    face = Image.new("RGB", size, zinc)
    pen = make_pen(face, stage.rng, stage.pen.unit)
    whole = Box(0, 0, *size)
    pen.frame(whole, mix(zinc, (0, 0, 0), 0.5))
    pen.fill(whole.inset(2).cut_top(pen.px(5))[0], mix(zinc, (255, 255, 255), 0.6))
    inner = whole.inset(pen.px(18), pen.px(10))
    for slot in inner.grid(9, 2, pen.px(5)):
        lean = slot.width // 3
        corners = [(slot.left + lean, slot.top), (slot.right + lean, slot.top)]
        corners += [(slot.right - lean, slot.bottom), (slot.left - lean, slot.bottom)]
        pen.draw.polygon(corners, fill=mix(zinc, (0, 0, 0), 0.62))
    for x in (pen.px(7), size[0] - pen.px(7)):
        for y in (pen.px(10), size[1] - pen.px(9)):
            draw_bolt(pen, (x, y), 4, (150, 152, 158))
    return face
