"""Painters of spreadsheets: grids with numbers, charts, side panels, online sheets."""

from groupwise_drawn.desktops.chrome import (
    draw_menu_bar,
    draw_scroll_bar,
    draw_status_bar,
    draw_tool_bar,
)
from groupwise_drawn.desktops.geometry import Box
from groupwise_drawn.desktops.office import draw_ribbon
from groupwise_drawn.desktops.pen import Pen
from groupwise_drawn.desktops.theme import WHITE, Color, mix, tint

__all__ = [
    "draw_chart",
    "paint_chart_sheet",
    "paint_online_sheet",
    "paint_sheet",
    "paint_wide_sheet",
]


def draw_chart(pen: Pen, box: Box, *, kind: str | None = None) -> None:
    """Draw a bar, line, scatter or pie chart with axes inside the box."""
    kind = kind or pen.rng.choice(("bar", "bar", "line", "scatter", "pie"))
    plot = box.inset(round(box.width * 0.1), round(box.height * 0.14))
    colors = [tint(pen.rng.random(), 0.65, 0.8) for _ in range(5)]
    if plot.width < 8 or plot.height < 8:
        return
    if kind == "pie":
        draw_pie(pen, plot, colors)
        return
    for line in range(5):
        y = plot.top + plot.height * line // 4
        pen.rule((plot.left, y), (plot.right, y), mix(pen.palette.edge, WHITE, 0.4))
    if kind == "bar":
        num_bars = pen.rng.randint(4, 12)
        for index, cell in enumerate(plot.grid(num_bars, 1, max(1, pen.px(3)))):
            bar = cell.cut_bottom(cell.height * pen.rng.uniform(0.15, 1.0))[0]
            pen.fill(bar, colors[index % 2])
    elif kind == "line":
        for color in colors[: pen.rng.randint(1, 3)]:
            draw_walk(pen, plot, color)
    else:
        for _ in range(pen.rng.randint(15, 50)):
            x, y = pen.rng.uniform(0.05, 0.95), pen.rng.gauss(0, 0.12)
            high = min(1.0, max(0.0, 1 - x + y))
            center = (plot.left + x * plot.width, plot.top + high * plot.height)
            pen.disc(center, pen.px(1.6), colors[0])


def draw_pie(pen: Pen, plot: Box, colors: list[Color]) -> None:
    """Draw a pie of five slices."""
    circle = plot.middle(min(plot.width, plot.height), min(plot.width, plot.height))
    start = 0.0
    for index, color in enumerate(colors):
        end = 360.0 if index == len(colors) - 1 else start + pen.rng.uniform(30, 85)
        pen.draw.pieslice(
            (circle.left, circle.top, circle.right, circle.bottom), start, end, fill=color
        )
        start = end


def draw_walk(pen: Pen, plot: Box, color: Color, *, filled: bool = False) -> None:
    """Draw a random walk over the plot's width, perhaps filled below."""
    height, points = pen.rng.uniform(0.3, 0.7), list[tuple[float, float]]()
    num_steps = 40
    for step in range(num_steps + 1):
        height = min(0.97, max(0.03, height + pen.rng.gauss(0, 0.05)))
        points.append((plot.left + plot.width * step / num_steps, plot.top + height * plot.height))
    if filled:
        below = [(plot.right, plot.bottom), (plot.left, plot.bottom)]
        pen.draw.polygon([*points, *below], fill=mix(pen.palette.paper, color, 0.25))
    pen.draw.line(points, fill=color, width=max(1, pen.px(1)))


def draw_formula_bar(pen: Pen, box: Box) -> Box:
    """Draw the name box and formula line; returns what is left below."""
    bar, rest = box.cut_top(pen.px(13))
    pal = pen.palette
    pen.fill(bar, pal.panel)
    name, line = bar.inset(pen.px(3), pen.px(1)).cut_left(pen.px(40))
    pen.frame(name, pal.edge, pal.paper)
    pen.text(name.inset(3, 0), f"{pen.rng.choice('ABCDEFG')}{pen.rng.randint(1, 40)}", size=7)
    line = Box(line.left + pen.px(30), line.top, line.right, line.bottom)
    pen.frame(line, pal.edge, pal.paper)
    if pen.rng.random() < 0.6:
        formula = f"=SUM({pen.rng.choice('ABC')}2:{pen.rng.choice('DEF')}{pen.rng.randint(10, 40)})"
        pen.text(line.inset(3, 0), formula, size=7)
    return rest


def draw_grid(pen: Pen, box: Box) -> None:
    """Draw column letters, row numbers, grid lines and a filled corner of cells."""
    pal = pen.palette
    paper = WHITE if pen.rng.random() < 0.8 else pal.paper
    ink: Color = (30, 30, 30) if sum(paper) > 380 else pal.ink
    cell_w, cell_h = pen.px(pen.rng.choice((32, 42, 54))), pen.px(pen.rng.choice((9, 10.5, 13)))
    pen.fill(box, paper)
    head, body = box.cut_top(cell_h)
    side, body = body.cut_left(pen.px(20))
    pen.fill(head, pal.panel)
    pen.fill(side, pal.panel)
    lines = mix(paper, ink, pen.rng.choice((0.1, 0.18, 0.28)))
    for x in range(body.left, box.right, cell_w):
        pen.rule((x, box.top), (x, box.bottom), lines)
        letter = chr(65 + (x - body.left) // cell_w % 26)
        pen.text(
            Box(x, head.top, x + cell_w, head.bottom),
            letter,
            size=6.5,
            color=pal.muted,
            align="center",
        )
    for y in range(body.top, box.bottom, cell_h):
        pen.rule((box.left, y), (box.right, y), lines)
        number = str(1 + (y - body.top) // cell_h)
        pen.text(
            Box(side.left, y, side.right, y + cell_h),
            number,
            size=6,
            color=pal.muted,
            align="center",
        )
    fill_cells(pen, body, (cell_w, cell_h), ink)


def fill_cells(pen: Pen, body: Box, cell: tuple[int, int], ink: Color) -> None:
    """Write a table into the grid's top left cells, with a head, numbers and a selection."""
    cell_w, cell_h = cell
    num_columns = min(pen.many(1, 9), max(1, body.width // cell_w))
    num_rows = min(pen.many(2, 45), max(1, body.height // cell_h))
    kinds = [pen.rng.random() < 0.35 for _ in range(num_columns)]
    head = tint(pen.rng.random(), 0.35, 0.9) if pen.rng.random() < 0.35 else None
    if head:
        pen.fill(
            Box(body.left, body.top, body.left + num_columns * cell_w, body.top + cell_h), head
        )
    for row in range(num_rows if pen.fullness > 0.12 else 0):
        for column in range(num_columns):
            left, top = body.left + column * cell_w, body.top + row * cell_h
            slot = Box(left + 2, top, left + cell_w - 2, top + cell_h)
            if row == 0:
                pen.text(
                    slot,
                    pen.word("columns"),
                    size=6.5,
                    color=(30, 30, 30) if head else ink,
                    bold=True,
                )
            elif kinds[column]:
                pen.text(slot, pen.word("cells"), size=6.5, color=ink)
            else:
                number = str(pen.rng.randint(10, 999))
                pen.text(slot, number, size=6.5, color=ink, align="right")
    column, row = pen.rng.randrange(num_columns + 1), pen.rng.randrange(num_rows + 1)
    left, top = body.left + column * cell_w, body.top + row * cell_h
    pen.frame(Box(left, top, left + cell_w + 1, top + cell_h + 1), pen.palette.accent)


def draw_sheet_tabs(pen: Pen, box: Box) -> Box:
    """Draw the sheet names below the grid; returns what is left above."""
    bar, rest = box.cut_bottom(pen.px(11))
    pen.fill(bar, pen.palette.panel)
    for index, cell in enumerate(bar.inset(pen.px(24), 0).grid(6, 1)[: pen.rng.randint(1, 4)]):
        if index == 0:
            pen.fill(cell, pen.palette.paper)
        pen.text(cell, f"Sheet{index + 1}", size=6.5, align="center")
    return rest


def paint_sheet(pen: Pen, box: Box) -> None:
    """A plain spreadsheet with menus or a ribbon."""
    if pen.rng.random() < 0.5:
        box = draw_ribbon(pen, box)
    else:
        box = draw_tool_bar(pen, draw_menu_bar(pen, box), num_rows=pen.rng.randint(1, 2))
    box = draw_sheet_tabs(pen, draw_status_bar(pen, draw_formula_bar(pen, box)))
    draw_grid(pen, draw_scroll_bar(pen, box))


def paint_chart_sheet(pen: Pen, box: Box) -> None:
    """A spreadsheet with one or two charts over its grid."""
    box = draw_tool_bar(pen, draw_menu_bar(pen, box), num_rows=pen.rng.randint(1, 2))
    box = draw_sheet_tabs(pen, draw_formula_bar(pen, box))
    draw_grid(pen, box)
    for _ in range(pen.rng.randint(1, 2)):
        w, h = (
            round(box.width * pen.rng.uniform(0.3, 0.5)),
            round(box.height * pen.rng.uniform(0.35, 0.6)),
        )
        left = box.left + pen.rng.randint(box.width // 5, max(box.width // 5, box.width - w))
        top = box.top + pen.rng.randint(0, max(0, box.height - h))
        area = Box(left, top, left + w, top + h)
        pen.frame(area, (120, 120, 120), WHITE)
        draw_chart(pen, area)


def paint_wide_sheet(pen: Pen, box: Box) -> None:
    """A spreadsheet with a panel of properties or a pivot table at the right."""
    box = draw_formula_bar(pen, draw_ribbon(pen, box))
    side, box = box.cut_right(box.width * pen.rng.uniform(0.2, 0.32))
    pen.fill(side, pen.palette.panel)
    for cell in side.inset(pen.px(6)).grid(1, pen.rng.randint(6, 12), pen.px(3)):
        tick, label = cell.cut_left(pen.px(10))
        pen.frame(tick.middle(pen.px(6), pen.px(6)), pen.palette.muted)
        pen.text(label, pen.word("columns"), size=7)
    draw_grid(pen, draw_sheet_tabs(pen, box))


def paint_online_sheet(pen: Pen, box: Box) -> None:
    """A spreadsheet in a browser page."""
    head, box = box.cut_top(pen.px(20))
    pen.fill(head, pen.palette.paper)
    pen.fill(head.cut_left(pen.px(20))[0].middle(pen.px(9), pen.px(11)), pen.palette.accent)
    pen.text(head.inset(pen.px(22), 0), pen.word("files"), size=9)
    pen.button(head.cut_right(pen.px(48))[0].inset(pen.px(4), pen.px(3)), "Share")
    draw_grid(pen, draw_sheet_tabs(pen, draw_formula_bar(pen, draw_tool_bar(pen, box))))
