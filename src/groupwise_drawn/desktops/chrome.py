"""What surrounds a window's content: title bars, menus, tool bars, browser bars, scroll bars.

The content itself is drawn by the painters of each activity.
"""

from groupwise_drawn.desktops.geometry import Box
from groupwise_drawn.desktops.pen import Pen
from groupwise_drawn.desktops.theme import Color, mix, tint
from groupwise_drawn.desktops.words import screen_words

__all__ = [
    "draw_browser_bars",
    "draw_menu_bar",
    "draw_scroll_bar",
    "draw_status_bar",
    "draw_title_bar",
    "draw_tool_bar",
]

LIGHTS: tuple[Color, Color, Color] = ((236, 95, 86), (245, 190, 60), (95, 198, 84))


def draw_title_bar(pen: Pen, box: Box, title: str) -> Box:
    """Draw the title bar at the top of the box; returns what is left below it."""
    bar, rest = box.cut_top(pen.px(14))
    pal = pen.palette
    color = pal.accent if pen.rng.random() < 0.12 else mix(pal.panel, pal.edge, 0.4)
    pen.fill(bar, color)
    ink: Color = (245, 245, 245) if sum(color) < 380 else (40, 40, 40)
    pen.text(bar.inset(pen.px(50), 0), title, size=7.5, color=ink, align="center")
    draw_window_buttons(pen, bar, ink)
    return rest


def draw_window_buttons(pen: Pen, bar: Box, ink: Color) -> None:
    """Close, maximise and minimise: coloured dots on the left or symbols on the right."""
    y, r = (bar.top + bar.bottom) / 2, pen.px(2.6)
    if pen.theme.buttons == "left":
        for index, color in enumerate(LIGHTS):
            pen.disc((bar.left + pen.px(8 + 10 * index), y), r, color)
        return
    for index in range(3):
        x = bar.right - pen.px(8 + 13 * index)
        if index == 0:
            pen.rule((x - r, y - r), (x + r, y + r), ink)
            pen.rule((x - r, y + r), (x + r, y - r), ink)
        elif index == 1:
            pen.frame(Box(x - r, round(y) - r, x + r, round(y) + r), ink)
        else:
            pen.rule((x - r, y + r), (x + r, y + r), ink)


def draw_menu_bar(pen: Pen, box: Box, num_menus: int = 8) -> Box:
    """Draw a line of menu names; returns what is left below it."""
    bar, rest = box.cut_top(pen.px(11))
    pen.fill(bar, pen.palette.panel)
    x = bar.left + pen.px(5)
    for name in pen.rng.sample(screen_words("menus"), num_menus):
        x += pen.text(Box(x, bar.top, bar.right, bar.bottom), name, size=7) + pen.px(7)
    return rest


def draw_tool_bar(pen: Pen, box: Box, *, num_rows: int = 1, row_height: float = 14) -> Box:
    """Draw rows of symbols with now and then a drop-down field; returns what is left below."""
    for _ in range(num_rows):
        bar, box = box.cut_top(pen.px(row_height))
        pen.fill(bar, pen.palette.panel)
        if pen.rng.random() < 0.4:
            field, bar = bar.cut_left(pen.px(70))
            field = field.inset(pen.px(4), pen.px(2))
            pen.frame(field, pen.palette.edge, pen.palette.paper)
            pen.text(field.inset(2, 0), pen.word("tools"), size=6.5)
        pen.icons(bar, size=7, gap=5, count=pen.rng.randint(10, 60))
    pen.rule((box.left, box.top), (box.right, box.top), pen.palette.edge)
    return box


def draw_status_bar(pen: Pen, box: Box, color: Color | None = None) -> Box:
    """Draw the line at the bottom; returns what is left above it."""
    bar, rest = box.cut_bottom(pen.px(10))
    pen.fill(bar, color or pen.palette.panel)
    ink = (245, 245, 245) if color and sum(color) < 420 else pen.palette.muted
    text = f"{pen.word('commands')}   {pen.rng.randint(1, 400)}, {pen.rng.randint(1, 80)}"
    pen.text(bar.inset(pen.px(5), 0), text, size=6.5, color=ink)
    pen.text(
        bar.inset(pen.px(5), 0),
        f"{pen.rng.randint(5, 20) * 10}%",
        size=6.5,
        color=ink,
        align="right",
    )
    return rest


def draw_scroll_bar(pen: Pen, box: Box) -> Box:
    """Draw a scroll bar at the right edge; returns what is left beside it."""
    bar, rest = box.cut_right(pen.px(6))
    pen.fill(bar, mix(pen.palette.panel, pen.palette.paper, 0.5))
    length = round(bar.height * pen.rng.uniform(0.1, 0.6))
    top = bar.top + pen.rng.randint(0, max(0, bar.height - length))
    thumb = Box(bar.left + 1, top, bar.right - 1, top + length)
    pen.fill(thumb, mix(pen.palette.edge, pen.palette.muted, 0.5))
    return rest


def draw_browser_bars(pen: Pen, box: Box) -> Box:
    """Draw tabs, address line and perhaps bookmarks; returns the page's box."""
    pal = pen.palette
    strip, rest = box.cut_top(pen.px(14))
    pen.fill(strip, mix(pal.panel, pal.edge, 0.6))
    draw_tabs(pen, strip)
    bar, rest = rest.cut_top(pen.px(15))
    pen.fill(bar, pal.panel)
    buttons, field = bar.cut_left(pen.px(48))
    pen.icons(buttons, size=6, gap=8, count=3)
    field = Box(
        field.left, field.top + pen.px(2), field.right - pen.px(50), field.bottom - pen.px(2)
    )
    pen.rounded(field, pal.paper, radius=5, edge=pal.edge)
    pen.text(field.inset(pen.px(8), 0), "https://" + pen.word("sites"), size=7, color=pal.muted)
    pen.icons(Box(field.right, bar.top, bar.right, bar.bottom), size=6, gap=5)
    if pen.rng.random() < 0.4:
        marks, rest = rest.cut_top(pen.px(11))
        pen.fill(marks, pal.panel)
        for cell in marks.inset(pen.px(6), 0).grid(6, 1)[: pen.rng.randint(2, 6)]:
            dot, label = cell.cut_left(pen.px(9))
            pen.fill(dot.middle(pen.px(5), pen.px(5)), tint(pen.rng.random(), 0.6, 0.8))
            pen.text(label, pen.word("tabs"), size=6.5)
    pen.rule((rest.left, rest.top - 1), (rest.right, rest.top - 1), pal.edge)
    return rest


def draw_tabs(pen: Pen, strip: Box) -> None:
    """Draw some tabs, one of them open, and the window buttons."""
    pal, num_tabs = pen.palette, pen.rng.randint(1, 6)
    active = pen.rng.randrange(num_tabs)
    room = strip.width - pen.px(60)
    left = strip.left + pen.px(36 if pen.theme.buttons == "left" else 4)
    width = min(pen.px(105), room // num_tabs)
    for index in range(num_tabs):
        tab = Box(left, strip.top + pen.px(2), left + width - 2, strip.bottom)
        if index == active:
            pen.rounded(tab, pal.panel, radius=3)
        dot = Box(tab.left + pen.px(4), tab.top, tab.left + pen.px(9), tab.bottom)
        pen.fill(dot.middle(pen.px(5), pen.px(5)), tint(pen.rng.random(), 0.7, 0.8))
        label = Box(tab.left + pen.px(13), tab.top, tab.right - pen.px(4), tab.bottom)
        pen.text(label, pen.word("tabs"), size=7, color=pal.ink if index == active else pal.muted)
        left += width
    draw_window_buttons(pen, strip, pal.ink)
