"""Painters of picture editing: layered editors, paint programs, photo desks, vector drawing."""

import math

from groupwise_drawn.desktops.chrome import draw_menu_bar, draw_status_bar, draw_tool_bar
from groupwise_drawn.desktops.geometry import Box
from groupwise_drawn.desktops.office import draw_ribbon
from groupwise_drawn.desktops.pen import Pen
from groupwise_drawn.desktops.pictures import Kind
from groupwise_drawn.desktops.theme import WHITE, mix, tint

__all__ = ["paint_darkroom", "paint_layers", "paint_simple_paint", "paint_vectors"]

SUBJECTS: tuple[Kind, ...] = ("object", "object", "portrait", "landscape", "food", "sea", "city")


def draw_canvas(pen: Pen, box: Box) -> Box:
    """Draw the picture that is edited, on checks or grey; returns where it lies."""
    pal = pen.palette
    pen.fill(box, mix(pal.paper, pal.panel, pen.rng.choice((0.0, 0.5, 1.0))))
    ratio = pen.rng.choice((1.0, 4 / 3, 3 / 2, 3 / 4))
    height = min(box.height * pen.rng.uniform(0.7, 0.97), box.width * 0.95 / ratio)
    art = box.middle(height * ratio, height)
    if pen.fullness < 0.15:
        pen.fill(art, WHITE)
    else:
        pen.picture(art, pen.rng.choice(SUBJECTS))
    if pen.rng.random() < 0.4:
        mark = art.middle(
            art.width * pen.rng.uniform(0.3, 0.8), art.height * pen.rng.uniform(0.2, 0.8)
        )
        pen.frame(mark, (250, 220, 60))
        for x in (mark.left, mark.right - pen.px(3)):
            for y in (mark.top, mark.bottom - pen.px(3)):
                pen.fill(Box(x, y, x + pen.px(3), y + pen.px(3)), WHITE)
    return art


def draw_sliders(pen: Pen, box: Box) -> None:
    """Draw named sliders from the box's top down."""
    step = pen.px(16)
    for row in range(box.height // step):
        line = Box(box.left, box.top + row * step, box.right, box.top + (row + 1) * step).inset(
            pen.px(5), 0
        )
        label, track = line.cut_top(step * 0.55)
        pen.text(label, pen.word("tools"), size=6.5)
        pen.text(label, str(pen.rng.randint(-50, 100)), size=6.5, align="right")
        y = (track.top + track.bottom) // 2
        pen.rule((track.left, y), (track.right, y), pen.palette.muted)
        pen.disc((track.left + track.width * pen.rng.random(), y), pen.px(2.2), pen.palette.accent)


def draw_layer_list(pen: Pen, box: Box) -> None:
    """Draw rows of layers, each with a small picture."""
    step = pen.px(18)
    for row in range(min(pen.rng.randint(1, 7), box.height // step)):
        line = Box(box.left, box.top + row * step, box.right, box.top + (row + 1) * step)
        if row == 0:
            pen.fill(line, mix(pen.palette.panel, pen.palette.accent, 0.35))
        art, label = line.inset(pen.px(3), pen.px(2)).cut_left(pen.px(22))
        pen.picture(art, pen.rng.choice(SUBJECTS))
        pen.text(label.inset(pen.px(4), 0), pen.word("tools"), size=7)


def draw_tool_box(pen: Pen, box: Box, num_columns: int) -> None:
    """Draw the grid of drawing tools and the two current colours."""
    pen.fill(box, pen.palette.panel)
    side = pen.px(12)
    for row in range(9):
        for column in range(num_columns):
            slot = Box(box.left + pen.px(4) + column * side, box.top + pen.px(4) + row * side, 0, 0)
            pen.icon(Box(slot.left, slot.top, slot.left + pen.px(7), slot.top + pen.px(7)))
    low = Box(box.left + pen.px(6), box.top + 9 * side + pen.px(10), box.right, box.bottom)
    for offset in (6, 0):
        left, top = low.left + pen.px(offset), low.top + pen.px(offset)
        pen.frame(
            Box(left, top, left + pen.px(12), top + pen.px(12)),
            WHITE,
            tint(pen.rng.random(), 0.8, 0.8),
        )


def paint_layers(pen: Pen, box: Box) -> None:
    """A layered editor: tools at the left, picture, brushes and layers at the right."""
    pal = pen.palette
    box = draw_status_bar(pen, draw_menu_bar(pen, box, num_menus=10))
    wide = pen.rng.random() < 0.5
    tools, box = box.cut_left(pen.px(100 if wide else 30))
    draw_tool_box(pen, tools, 7 if wide else 2)
    if wide:
        draw_sliders(pen, tools.cut_bottom(tools.height * 0.45)[0])
    side, box = box.cut_right(box.width * pen.rng.uniform(0.18, 0.28))
    pen.fill(side, pal.panel)
    upper, lower = side.cut_top(side.height * pen.rng.uniform(0.3, 0.5))
    for cell in upper.inset(pen.px(5)).grid(6, 5, 2):
        dot = min(cell.width, cell.height) * pen.rng.uniform(0.1, 0.5)
        pen.fill(cell, mix(pal.panel, WHITE, 0.85))
        pen.disc(((cell.left + cell.right) / 2, (cell.top + cell.bottom) / 2), dot, (20, 20, 20))
    middle, lower = lower.cut_top(lower.height * 0.4)
    draw_sliders(pen, middle)
    draw_layer_list(pen, lower)
    draw_canvas(pen, box)


def paint_simple_paint(pen: Pen, box: Box) -> None:
    """A simple paint program: ribbon with a palette of colours, a white or scribbled sheet."""
    box = draw_status_bar(pen, draw_ribbon(pen, box))
    colors, box = box.cut_top(pen.px(24))
    pen.fill(colors, pen.palette.panel)
    for index, cell in enumerate(colors.inset(pen.px(30), pen.px(2)).grid(18, 2, 1)):
        pen.fill(
            cell, tint(index / 18, 0.8 if index < 18 else 0.35, 0.9) if index % 18 else (0, 0, 0)
        )
    pen.fill(box, mix(pen.palette.edge, (150, 165, 185), 0.5))
    sheet = box.inset(pen.px(6)).cut_left(box.width * pen.rng.uniform(0.6, 0.95))[0]
    sheet = sheet.cut_top(sheet.height * pen.rng.uniform(0.65, 1.0))[0]
    pen.fill(sheet, WHITE)
    if pen.rng.random() < 0.5:
        pen.picture(sheet.middle(sheet.width * 0.7, sheet.height * 0.8), pen.rng.choice(SUBJECTS))
    for _ in range(pen.rng.randint(1, 6)):
        draw_scribble(pen, sheet)


def draw_scribble(pen: Pen, sheet: Box) -> None:
    """Draw a freehand stroke of any colour that stays on the sheet."""
    x, y, angle = sheet.left + sheet.width / 2, sheet.top + sheet.height / 2, pen.rng.uniform(0, 6)
    points: list[tuple[float, float]] = []
    for _ in range(30):
        angle += pen.rng.gauss(0, 0.6)
        x = min(sheet.right - 2, max(sheet.left, x + sheet.width * 0.05 * math.cos(angle)))
        y = min(sheet.bottom - 2, max(sheet.top, y + sheet.height * 0.06 * math.sin(angle)))
        points.append((x, y))
    pen.draw.line(
        points, fill=tint(pen.rng.random(), 0.9, 0.8), width=pen.px(pen.rng.choice((1, 2, 4)))
    )


def paint_darkroom(pen: Pen, box: Box) -> None:
    """A photo desk: one photo, sliders and a histogram at the right, a film strip below."""
    pal = pen.palette
    side, box = box.cut_right(box.width * pen.rng.uniform(0.2, 0.28))
    pen.fill(side, pal.panel)
    graph, sliders = side.cut_top(pen.px(62))
    graph = graph.inset(pen.px(5))
    pen.fill(graph, mix(pal.paper, (0, 0, 0), 0.4))
    level = 0.3
    for x in range(graph.left, graph.right, 2):
        level = min(0.95, max(0.05, level + pen.rng.gauss(0, 0.08)))
        pen.rule((x, graph.bottom - 1), (x, graph.bottom - level * graph.height), (170, 170, 180))
    draw_sliders(pen, sliders)
    strip, box = box.cut_bottom(box.height * pen.rng.uniform(0.14, 0.22))
    pen.fill(strip, pal.panel)
    for cell in strip.inset(pen.px(4)).grid(pen.rng.randint(6, 9), 1, pen.px(4)):
        pen.picture(cell, pen.rng.choice(SUBJECTS))
    if pen.rng.random() < 0.3:
        pen.fill(box, pal.paper)
        for cell in box.inset(pen.px(5)).grid(2, 1, pen.px(4)):
            draw_canvas(pen, cell)
        return
    draw_canvas(pen, box)


def paint_vectors(pen: Pen, box: Box) -> None:
    """A vector drawing program: shapes with handles on a sheet, swatches below."""
    pal = pen.palette
    box = draw_tool_bar(pen, draw_menu_bar(pen, box, num_menus=10))
    swatches, box = box.cut_bottom(pen.px(12))
    for index, cell in enumerate(swatches.grid(40, 1)):
        pen.fill(cell, tint(index / 40, 0.8, 0.9))
    tools, box = box.cut_left(pen.px(18))
    draw_tool_box(pen, tools, 1)
    side, box = box.cut_right(box.width * pen.rng.uniform(0.02, 0.22))
    pen.fill(side, pal.panel)
    draw_sliders(pen, side)
    pen.fill(box, mix(pal.panel, pal.edge, 0.4))
    sheet = box.middle(box.width * 0.75, box.height * 0.9)
    pen.fill(sheet, WHITE)
    for _ in range(pen.rng.randint(3, 9)):
        w, h = sheet.width * pen.rng.uniform(0.1, 0.4), sheet.height * pen.rng.uniform(0.1, 0.4)
        x = sheet.left + pen.rng.uniform(0, sheet.width - w)
        y = sheet.top + pen.rng.uniform(0, sheet.height - h)
        color = tint(pen.rng.random(), pen.rng.uniform(0.4, 0.9), 0.9)
        shape = pen.rng.randrange(3)
        if shape == 0:
            pen.draw.ellipse((x, y, x + w, y + h), fill=color)
        elif shape == 1:
            pen.rounded(Box(round(x), round(y), round(x + w), round(y + h)), color)
        else:
            pen.draw.polygon([(x, y + h), (x + w / 2, y), (x + w, y + h)], fill=color)
    pen.frame(sheet.middle(sheet.width * 0.4, sheet.height * 0.4), (40, 120, 240))
