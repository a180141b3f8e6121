"""What is not inside the cabinet: its closed door, cardboard in the way, floor, door and sky."""

from PIL import Image

from groupwise_drawn.cabinets.stage import Stage, make_pen, paste_turned
from groupwise_drawn.desktops.geometry import Box
from groupwise_drawn.desktops.theme import Color, mix, tint

__all__ = ["IRRELEVANT_PAINTERS", "draw_cardboard", "paint_closed"]

CARDBOARD: Color = (178, 134, 84)


def paint_closed(stage: Stage) -> None:
    """Paint the cabinet from outside: a door with slits, a handle and a lock."""
    pen, rng = stage.pen, stage.rng
    ground = tint(rng.random(), 0.08 * stage.variety, rng.uniform(0.55, 0.7))
    pen.fill(stage.box, ground)
    pen.fill(stage.area(0, 0.93, 1, 1), mix(ground, (0, 0, 0), 0.45))
    paint = stage.shade(stage.paint, 0.08)
    edge = 0.09 + stage.stray(0.03)
    door = stage.area(edge, 0.03, 1 - edge, 0.95)
    pen.frame(door, mix(paint, (0, 0, 0), 0.6), mix(paint, (0, 0, 0), 0.25))
    panel = door.inset(pen.px(5))
    pen.frame(panel, mix(paint, (0, 0, 0), 0.6), paint)
    for top in (0.12, 0.68):
        y = top + stage.stray(0.02)
        for slit in stage.area(0.3, y, 0.7, y + 0.16).grid(1, 5, pen.px(3)):
            pen.fill(slit, mix(paint, (0, 0, 0), 0.6))
    side = rng.choice((0.2, 0.76))
    handle = stage.area(side, 0.4, side + 0.045, 0.6)
    pen.rounded(handle, (25, 25, 28) if stage.color != "black" else (190, 192, 196), radius=4)
    center = ((handle.left + handle.right) / 2, handle.bottom - pen.px(7))
    pen.disc(center, pen.px(3.5), (222, 190, 70))


def draw_cardboard(stage: Stage, area: Box) -> None:
    """Cover an area with a sheet of cardboard that lies a little askew."""
    pen, rng = stage.pen, stage.rng
    size = (round(area.width * 1.08) + pen.px(10), round(area.height * 1.08) + pen.px(10))
    color = stage.shade(CARDBOARD)
    sheet = Image.new("RGB", size, color)
    on_sheet = make_pen(sheet, rng, pen.unit)
    whole = Box(0, 0, *size)
    for y in range(0, size[1], pen.px(7)):
        on_sheet.rule((0, y), (size[0], y), mix(color, (0, 0, 0), 0.1))
    on_sheet.frame(whole, mix(color, (0, 0, 0), 0.5))
    on_sheet.fill(whole.middle(size[0], size[1] * 0.16), mix(color, (240, 225, 190), 0.6))
    on_sheet.text(whole.middle(size[0] * 0.5, size[1] * 0.12), "FRAGILE", size=10, align="center")
    center = ((area.left + area.right) / 2, (area.top + area.bottom) / 2)
    paste_turned(stage, sheet, center, rng.uniform(-3, 3))


def paint_floor(stage: Stage) -> None:
    """Paint a tiled floor that runs away from the camera."""
    pen, rng = stage.pen, stage.rng
    tile = tint(rng.choice((0.07, 0.1, 0.6)), rng.uniform(0.05, 0.3), rng.uniform(0.55, 0.8))
    pen.fill(stage.box, tile)
    gap, far = mix(tile, (0, 0, 0), 0.45), 0.12 + stage.stray(0.06)
    pen.fill(stage.area(0, 0, 1, far), mix(tile, (255, 255, 255), 0.55))
    pen.fill(stage.area(0, far, 1, far + 0.03), mix(tile, (0, 0, 0), 0.6))
    shift = stage.stray(0.15)
    for number in range(-6, 7):
        start = stage.at(0.5 + shift + number * 0.09, far + 0.03)
        end = stage.at(0.5 + shift + number * 0.4, 1)
        pen.draw.line((*start, *end), fill=gap, width=pen.px(2))
    for number in range(1, 7):
        y = far + 0.03 + (0.97 - far) * (number / 6) ** 1.8
        pen.fill(stage.area(0, y, 1, y + 0.012), gap)


def paint_door(stage: Stage) -> None:
    """Paint the wooden door of a room in its wall."""
    pen, rng = stage.pen, stage.rng
    wall = tint(rng.random(), 0.1, rng.uniform(0.78, 0.92))
    pen.fill(stage.box, wall)
    wood = stage.shade((134, 84, 46), 0.25)
    left = 0.27 + stage.stray(0.08)
    frame = stage.area(left, 0.04, left + 0.46, 1)
    pen.fill(frame, mix(wood, (0, 0, 0), 0.45))
    door = Box(frame.left + pen.px(6), frame.top + pen.px(6), frame.right - pen.px(6), frame.bottom)
    pen.fill(door, wood)
    for panel in door.inset(pen.px(12), pen.px(10)).grid(2, 2, pen.px(10)):
        pen.frame(panel, mix(wood, (0, 0, 0), 0.5), mix(wood, (0, 0, 0), 0.15))
    knob = door.right - pen.px(7) if rng.random() < 0.5 else door.left + pen.px(7)
    pen.disc((knob, (door.top + door.bottom) / 2), pen.px(4), (225, 200, 110))
    pen.fill(stage.area(0, 0.96, left, 1), mix(wall, (0, 0, 0), 0.35))


def paint_sky(stage: Stage) -> None:
    """Paint the sky with clouds above roofs."""
    pen, rng = stage.pen, stage.rng
    low, high = tint(0.56, 0.2, 0.97), tint(0.59, rng.uniform(0.5, 0.75), rng.uniform(0.75, 0.95))
    for row, part in enumerate(stage.box.grid(1, 24)):
        pen.fill(part, mix(high, low, row / 24))
    for _ in range(rng.randint(2, 4)):
        x, y = rng.uniform(0.1, 0.9), rng.uniform(0.12, 0.55)
        for _ in range(7):
            center = stage.at(x + rng.uniform(-0.12, 0.12), y + rng.uniform(-0.04, 0.04))
            pen.disc(center, pen.px(rng.uniform(8, 17)), mix(low, (255, 255, 255), 0.85))
    x = 0.0
    while x < 1:
        width, top = rng.uniform(0.12, 0.3), rng.uniform(0.78, 0.92)
        shade = tint(rng.random(), 0.15, rng.uniform(0.3, 0.5))
        pen.fill(stage.area(x, top, x + width, 1), shade)
        x += width


IRRELEVANT_PAINTERS = {"floor": paint_floor, "door": paint_door, "sky": paint_sky}
