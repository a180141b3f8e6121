"""What runs through a cabinet: the earth wire to its copper bar, and bundles of cables."""

from collections.abc import Sequence

from groupwise_drawn.cabinets.stage import (
    Point,
    Stage,
    bend,
    draw_bolt,
    draw_cable,
    draw_interior,
)
from groupwise_drawn.cabinets.unit import pick_body
from groupwise_drawn.cabinets.vocabulary import WireColor
from groupwise_drawn.desktops.geometry import Box
from groupwise_drawn.desktops.pen import Pen
from groupwise_drawn.desktops.theme import Color, mix

__all__ = ["paint_cables", "paint_wire"]

YELLOW: Color = (245, 215, 30)
GREEN: Color = (30, 150, 50)
COPPER: Color = (196, 116, 58)
WIRES: dict[WireColor, Color] = {"red": (205, 35, 35), "blue": (35, 75, 205), "black": (18, 18, 20)}
CABLES: tuple[Color, ...] = (
    (238, 200, 60),
    (70, 150, 210),
    (215, 120, 40),
    (160, 165, 172),
    (110, 180, 120),
)
TIE: Color = (248, 248, 244)


def paint_wire(stage: Stage, variant: str, color: WireColor = "red") -> Box:
    """Paint a unit's earth terminal, the bar and, unless ``absent``, the wire between them.

    ``right``, ``absent``, ``loose`` (ends in the air) or ``color`` (a wire of that colour).
    """
    draw_interior(stage)
    top = 0.26 + stage.stray(0.04)
    draw_bottom_edge(stage, top)
    start = stage.at(0.36 + stage.stray(0.1), top - 0.06)
    bar_y = 0.78 + stage.stray(0.05)
    bolts = draw_bar(stage, bar_y)
    draw_bolt(stage.pen, start, 6)
    if variant != "absent":
        end = bolts[stage.rng.choice((2, 3))]
        if variant == "loose":
            end = stage.at(0.62 + stage.stray(0.12), 0.52 + stage.stray(0.05))
        curve = bend([start, (start[0], end[1]), (end[0], start[1] + end[1] * 0.25), end])
        if variant == "color":
            draw_cable(stage.pen, curve, WIRES[color], 11)
        else:
            draw_striped(stage.pen, curve, 11)
        for point in (start, end):
            draw_lug(stage.pen, point, has_bolt=point is start or variant != "loose")
    return stage.area(0.2, top - 0.14, 0.88, bar_y + 0.12)


def draw_bottom_edge(stage: Stage, level: float) -> None:
    """Draw the lower part of a unit that ends at a level, with its earth plate."""
    pen, body = stage.pen, pick_body(stage)
    pen.frame(stage.area(0.1, 0, 0.9, level), mix(body, (0, 0, 0), 0.6), body)
    for number in range(9):
        left = 0.5 + number * 0.04
        pen.fill(stage.area(left, 0.03, left + 0.022, level - 0.05), mix(body, (0, 0, 0), 0.5))


def draw_bar(stage: Stage, level: float) -> list[Point]:
    """Draw the copper bar at a level; returns its bolts from left to right."""
    pen = stage.pen
    box = stage.area(0.2, level - 0.06, 0.86, level + 0.06)
    copper = stage.shade(COPPER)
    pen.frame(box, mix(copper, (0, 0, 0), 0.5), copper)
    pen.fill(box.cut_top(box.height * 0.25)[0].inset(1, 1), mix(copper, (255, 255, 255), 0.3))
    bolts = [stage.at(0.27 + 0.13 * number, level) for number in range(5)]
    for bolt in bolts:
        draw_bolt(pen, bolt, 4.5)
    return bolts


def draw_striped(pen: Pen, curve: Sequence[Point], width: float) -> None:
    """Draw a yellow wire with green stripes."""
    draw_cable(pen, curve, YELLOW, width)
    for number in range(1, len(curve) - 2, 4):
        piece = [value for point in curve[number : number + 3] for value in point]
        pen.draw.line(piece, fill=GREEN, width=pen.px(width * 0.9))


def draw_lug(pen: Pen, center: Point, *, has_bolt: bool) -> None:
    """Draw the ring at a wire's end, with the bolt through it or empty."""
    pen.disc(center, pen.px(9), (120, 124, 130))
    pen.disc(center, pen.px(8), (214, 217, 222))
    if has_bolt:
        draw_bolt(pen, center, 5)
    else:
        pen.disc(center, pen.px(4.5), (25, 25, 28))


def paint_cables(stage: Stage, variant: str, num_bundles: int = 1) -> Box:
    """Paint cables that hang from ports: ``right`` (tied bundles), ``crossing`` or ``untied``."""
    draw_interior(stage)
    level = 0.2 + stage.stray(0.03)
    draw_port_row(stage, level)
    colors = stage.rng.sample(CABLES, 2)
    if variant == "right":
        for place in (0.5,) if num_bundles == 1 else (0.3, 0.7):
            draw_bundle(stage, place + stage.stray(0.05), level, colors)
    elif variant == "untied":
        draw_fan_of_cables(stage, level, colors)
    else:
        draw_tangle(stage, level, colors)
    return stage.area(0.1, level - 0.06, 0.9, 1.0)


def draw_port_row(stage: Stage, level: float) -> None:
    """Draw the lower part of a unit with a row of ports above a level."""
    pen, body = stage.pen, pick_body(stage)
    box = stage.area(0.1, 0, 0.9, level)
    pen.frame(box, mix(body, (0, 0, 0), 0.6), body)
    for port in box.cut_bottom(box.height * 0.5)[0].inset(pen.px(6), pen.px(3)).grid(12, 1, 5):
        pen.fill(port, (26, 28, 32))


def draw_bundle(stage: Stage, x: float, level: float, colors: list[Color]) -> None:
    """Draw parallel cables around ``x`` with a tie at every quarter."""
    pen, rng = stage.pen, stage.rng
    num_cables, pitch = 6, 0.027
    sway = stage.stray(0.05)
    for number in range(num_cables):
        offset = (number - (num_cables - 1) / 2) * pitch
        places = [(offset * 1.5, level - 0.03), (offset, level + 0.15)]
        places += [(offset + sway, 0.6), (offset, 1.05)]
        curve = bend([stage.at(x + dx, y) for dx, y in places])
        draw_cable(pen, curve, colors[number % 2], 5)
    for share in (0.42, 0.64, 0.86):
        y = share + stage.stray(0.03)
        half = pitch * num_cables / 2 + 0.02
        band = stage.area(x - half, y - 0.02, x + half, y + 0.02).shift(
            stage.area(0, 0, abs(sway) * 0.4, 1).width * (1 if sway > 0 else -1), 0
        )
        pen.frame(band, (90, 90, 90), TIE)
        knot = band.cut_right(pen.px(6))[0].inset(0, -pen.px(2)).shift(rng.randint(-4, 0), 0)
        pen.frame(knot, (90, 90, 90), TIE)


def draw_fan_of_cables(stage: Stage, level: float, colors: list[Color]) -> None:
    """Draw cables that hang apart from each other, without a tie."""
    for number in range(7):
        x = 0.2 + number * 0.1
        end = 0.5 + (x - 0.5) * 1.2 + stage.stray(0.03)
        sway = (0.07 + stage.stray(0.05)) * (-1) ** number
        places = [(x, level - 0.03), (x + sway, 0.45), (end - sway * 1.6, 0.75), (end, 1.05)]
        curve = bend([stage.at(*place) for place in places])
        draw_cable(stage.pen, curve, colors[number % 2], 5)


def draw_tangle(stage: Stage, level: float, colors: list[Color]) -> None:
    """Draw cables that cross each other and loop."""
    rng = stage.rng
    for number in range(9):
        start = 0.17 + number * 0.083
        places = [(start, level - 0.03), (rng.uniform(0.0, 1.0), 0.55)]
        places += [(rng.uniform(-0.2, 1.2), rng.uniform(0.1, 1.0)) for _ in range(2)]
        places += [(1 - start + rng.uniform(-0.25, 0.25), 1.05)]
        curve = bend([stage.at(*place) for place in places])
        draw_cable(stage.pen, curve, colors[number % 2], 5)
