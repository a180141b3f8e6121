"""Painters of text documents: word processors, online documents, notes.

Each paints the whole content of a window below its title or browser bars.
"""

from groupwise_drawn.desktops.chrome import (
    draw_menu_bar,
    draw_scroll_bar,
    draw_status_bar,
    draw_tool_bar,
)
from groupwise_drawn.desktops.geometry import Box
from groupwise_drawn.desktops.pen import Pen
from groupwise_drawn.desktops.theme import WHITE, Color, mix, tint

__all__ = ["draw_ribbon", "paint_form", "paint_notes", "paint_online_document", "paint_writer"]

INK: Color = (30, 30, 34)


def draw_ribbon(pen: Pen, box: Box) -> Box:
    """Draw a tabbed ribbon of grouped tools; returns what is left below it."""
    tabs, rest = box.cut_top(pen.px(11))
    coloured = pen.rng.random() < 0.5
    pen.fill(tabs, pen.palette.accent if coloured else pen.palette.panel)
    ink: Color = WHITE if coloured and sum(pen.palette.accent) < 480 else pen.palette.ink
    for cell in tabs.grid(9, 1)[: pen.rng.randint(5, 9)]:
        pen.text(cell.inset(pen.px(4), 0), pen.word("menus"), size=7, color=ink)
    band, rest = rest.cut_top(pen.px(34))
    pen.fill(band, pen.palette.panel)
    for group in band.inset(pen.px(3)).grid(pen.rng.randint(4, 7), 1, pen.px(4)):
        upper, lower = group.cut_top(group.height * 0.55)
        pen.icons(upper, size=9, gap=5)
        pen.icons(lower, size=6, gap=4)
        pen.rule((group.right, group.top), (group.right, group.bottom), pen.palette.edge)
    pen.rule((rest.left, rest.top), (rest.right, rest.top), pen.palette.edge)
    return rest


def draw_page(pen: Pen, page: Box, *, plain: bool = False) -> None:
    """Draw a white sheet with a title, prose and perhaps a table, list or picture."""
    pen.frame(page, mix(pen.palette.edge, WHITE, 0.3), WHITE)
    body = page.inset(round(page.width * 0.1), pen.px(16))
    if pen.fullness < 0.2:
        pen.rule((body.left, body.top), (body.left, body.top + pen.px(10)), INK)
        return
    title, body = body.cut_top(pen.px(22))
    align = pen.rng.choice(("left", "center"))
    size = pen.rng.choice((11, 14, 18))
    pen.text(title, pen.word("titles"), size=size, color=INK, align=align, bold=True)
    size = pen.rng.choice((6.5, 7.5, 9))
    body = body.cut_top(body.height * min(1.0, pen.fullness + 0.1))[0]
    while body.height > pen.px(24):
        extra = "prose" if plain else pen.rng.choice(("prose", "prose", "table", "picture", "list"))
        used = draw_block(pen, body, extra, size)
        body = body.cut_top(used + pen.px(8))[1]


def draw_block(pen: Pen, body: Box, kind: str, size: float) -> int:
    """Draw one block of a page from the box's top down; returns its height in pixels."""
    if kind == "table":
        area = body.cut_top(pen.px(pen.rng.randint(35, 70)))[0]
        draw_table(pen, area, pen.rng.randint(3, 5), pen.rng.randint(3, 5))
        return area.height
    if kind == "picture":
        area = body.cut_top(pen.px(pen.rng.randint(50, 90)))[0]
        inner = area.middle(area.width * pen.rng.uniform(0.4, 0.9), area.height)
        pen.picture(inner, pen.rng.choice(("landscape", "city", "object", "portrait")))
        return area.height
    if kind == "list":
        y = body.top
        for _ in range(pen.rng.randint(3, 6)):
            line = Box(body.left + pen.px(18), y, body.right - pen.px(40), y + pen.px(size * 1.7))
            pen.disc((body.left + pen.px(10), (line.top + line.bottom) / 2), pen.px(1.5), INK)
            pen.prose_line(line, size=size, color=INK)
            y = line.bottom
        return y - body.top
    num_lines = pen.rng.randint(4, 12)
    return pen.prose(body, size=size, color=INK, num_lines=num_lines) - body.top


def draw_table(pen: Pen, box: Box, num_columns: int, num_rows: int) -> None:
    """Draw a ruled table with a shaded head."""
    for index, cell in enumerate(box.grid(num_columns, num_rows)):
        head = index < num_columns
        pen.frame(cell, (150, 150, 150), (225, 228, 235) if head else WHITE)
        pen.text(cell.inset(3, 0), pen.word("columns" if head else "cells"), size=6.5, color=INK)


def page_box(pen: Pen, area: Box) -> Box:
    """Where the sheet lies in its grey surroundings: centred, scrolled by chance."""
    width = min(area.width - pen.px(16), round(area.width * pen.rng.uniform(0.55, 0.92)))
    sheet = area.middle(width, area.height)
    top = area.top + pen.rng.choice((pen.px(8), pen.px(20), 0))
    bottom = area.bottom if pen.rng.random() < 0.8 else area.bottom - pen.px(30)
    return Box(sheet.left, top, sheet.right, bottom)


def paint_writer(pen: Pen, box: Box) -> None:
    """A word processor: menus or ribbon, ruler, sheet on grey, status line, perhaps a side bar."""
    pal = pen.palette
    if pen.rng.random() < 0.5:
        box = draw_ribbon(pen, box)
    else:
        box = draw_tool_bar(pen, draw_menu_bar(pen, box), num_rows=2)
    box = draw_scroll_bar(pen, draw_status_bar(pen, box))
    pen.fill(box, mix(pal.panel, pal.edge, pen.rng.choice((0.2, 0.6))))
    if pen.rng.random() < 0.4:
        side, box = box.cut_right(pen.px(pen.rng.choice((14, 80))))
        pen.fill(side, pal.panel)
        for cell in side.inset(pen.px(4)).grid(1, 9):
            pen.icon(cell.cut_left(pen.px(7))[0].middle(pen.px(7), pen.px(7)))
            pen.text(cell.inset(pen.px(12), 0), pen.word("tools"), size=6.5)
    sheet = page_box(pen, box)
    if pen.rng.random() < 0.7:
        ruler, box = box.cut_top(pen.px(8))
        pen.fill(Box(sheet.left, ruler.top, sheet.right, ruler.bottom - 2), WHITE)
        for x in range(sheet.left, sheet.right, pen.px(9)):
            pen.rule((x, ruler.top + 2), (x, ruler.bottom - 4), pal.muted)
        sheet = Box(sheet.left, ruler.bottom, sheet.right, sheet.bottom)
    draw_page(pen, sheet)


def paint_online_document(pen: Pen, box: Box) -> None:
    """A document edited in a browser: slim header, one tool bar, sheet, perhaps comments."""
    pal = pen.palette
    head, box = box.cut_top(pen.px(20))
    pen.fill(head, pal.paper)
    pen.fill(
        Box(
            head.left + pen.px(6),
            head.top + pen.px(4),
            head.left + pen.px(15),
            head.bottom - pen.px(3),
        ),
        pal.accent,
    )
    pen.text(head.inset(pen.px(20), 0), pen.word("titles"), size=9)
    pen.button(head.cut_right(pen.px(48))[0].inset(pen.px(4), pen.px(3)), "Share")
    box = draw_tool_bar(pen, box)
    pen.fill(box, mix(pal.panel, pal.paper, 0.4))
    if pen.rng.random() < 0.5:
        notes, box = box.cut_right(box.width * 0.22)
        for cell in notes.inset(pen.px(5)).grid(1, 5, pen.px(6))[: pen.rng.randint(1, 4)]:
            pen.rounded(cell, pal.paper, edge=pal.edge)
            pen.text(
                cell.cut_top(pen.px(12))[0].inset(pen.px(4), 0),
                pen.word("names"),
                size=7,
                bold=True,
            )
            pen.prose(cell.inset(pen.px(4), pen.px(12)), size=6)
    draw_page(pen, page_box(pen, box))


def paint_notes(pen: Pen, box: Box) -> None:
    """A plain text or note editor: perhaps a list of notes at the left, then plain lines."""
    pal = pen.palette
    box = draw_menu_bar(pen, box, num_menus=5)
    pen.fill(box, pal.paper)
    if pen.rng.random() < 0.6:
        side, box = box.cut_left(box.width * pen.rng.uniform(0.2, 0.32))
        pen.fill(side, pal.panel)
        chosen = pen.rng.randrange(6)
        for index, cell in enumerate(side.grid(1, pen.rng.randint(6, 9), 1)):
            if index == chosen:
                pen.fill(cell, mix(pal.panel, pal.accent, 0.5))
            upper, lower = cell.inset(pen.px(5), pen.px(2)).cut_top(cell.height * 0.45)
            pen.text(upper, pen.word("titles"), size=7.5, bold=True)
            pen.prose_line(lower, size=6, color=pal.muted)
    body = box.inset(pen.px(12), pen.px(8))
    title, body = body.cut_top(pen.px(18))
    pen.text(title, pen.word("titles"), size=12, bold=True)
    used = body.cut_top(body.height * max(0.15, pen.fullness))[0]
    pen.prose(used, size=pen.rng.choice((7, 8.5)), leading=pen.rng.choice((1.5, 1.9)))


def paint_form(pen: Pen, box: Box) -> None:
    """A letter or form seen in full with a dark border, as a two-page layout."""
    box = draw_status_bar(pen, draw_ribbon(pen, box))
    pen.fill(box, mix(pen.palette.edge, (90, 90, 100), pen.rng.uniform(0.1, 0.6)))
    for page in box.inset(pen.px(14), pen.px(8)).grid(2, 1, pen.px(10)):
        pen.frame(page, (150, 150, 150), WHITE)
        strip, body = page.inset(pen.px(12), pen.px(10)).cut_top(pen.px(16))
        pen.text(
            strip, pen.word("titles"), size=10, color=tint(pen.rng.random(), 0.7, 0.5), bold=True
        )
        pen.prose(body, size=pen.rng.choice((5.5, 6.5)), color=INK)
