"""Painters of presentations: editors with a slide list, sorters and running slide shows."""

from groupwise_drawn.desktops.chrome import draw_menu_bar, draw_status_bar, draw_tool_bar
from groupwise_drawn.desktops.geometry import Box
from groupwise_drawn.desktops.office import draw_ribbon
from groupwise_drawn.desktops.pen import Pen
from groupwise_drawn.desktops.sheets import draw_chart
from groupwise_drawn.desktops.theme import WHITE, Color, mix, tint

__all__ = ["draw_slide", "paint_impress", "paint_ribbon_slides", "paint_show", "paint_sorter"]


def pick_deck(pen: Pen) -> tuple[Color, Color]:
    """Background and title colour of one slide deck."""
    hue = pen.rng.random()
    style = pen.rng.randrange(3)
    if style == 0:
        return WHITE, tint(hue, 0.8, 0.5)
    if style == 1:
        return tint(hue, 0.75, 0.4), WHITE
    return tint(hue, 0.12, 0.97), tint(hue + 0.5, 0.7, 0.4)


def fit_slide(box: Box, share: float = 0.94, ratio: float = 16 / 9) -> Box:
    """The largest centred slide of that shape within a share of the box."""
    width = min(box.width * share, box.height * share * ratio)
    return box.middle(width, width / ratio)


def draw_slide(pen: Pen, box: Box, deck: tuple[Color, Color], *, blank: bool = False) -> None:
    """Draw a slide: title with bullets, a chart, a picture, or an empty outline."""
    back, strong = deck
    pen.fill(box, back)
    size = max(4.0, box.height / 11 / pen.unit)
    ink = mix(strong, (128, 128, 128), 0.3)
    inner = box.inset(round(box.width * 0.07), round(box.height * 0.07))
    title, body = inner.cut_top(box.height * 0.2)
    if blank:
        pen.frame(title, ink)
        pen.frame(body.inset(0, round(box.height * 0.04)), ink)
        pen.text(title, "Click to add title", size=size, color=strong, align="center")
        return
    layout = pen.rng.randrange(5)
    if layout == 0:
        pen.text(box, pen.word("slides"), size=size * 1.5, color=strong, align="center", bold=True)
        return
    pen.text(title, pen.word("slides"), size=size * 1.2, color=strong, bold=True)
    if layout in (1, 2):
        half, body = body.cut_right(body.width * 0.45)
        if layout == 1:
            pen.picture(half, pen.rng.choice(("landscape", "city", "object", "portrait")))
        else:
            pen.fill(half, mix(back, WHITE, 0.5))
            draw_chart(pen, half)
    if layout == 3:
        pen.picture(
            body.middle(body.width * 0.7, body.height), pen.rng.choice(("landscape", "sea", "room"))
        )
        return
    for row in body.grid(1, 5)[: pen.rng.randint(2, 5)]:
        dot, line = row.cut_left(row.height * 0.6)
        pen.disc(
            (dot.left + dot.width / 2, dot.top + dot.height / 2), max(1, row.height // 12), strong
        )
        pen.prose_line(line.cut_left(line.width * 0.9)[0], size=size * 0.62, color=ink)


def draw_slide_list(pen: Pen, side: Box, deck: tuple[Color, Color]) -> None:
    """Draw the column of small numbered slides."""
    pen.fill(side, pen.palette.panel)
    step = round(side.width * 0.62)
    chosen = pen.rng.randrange(3)
    for index in range(max(1, min(pen.many(1, 9), side.height // max(1, step)))):
        top = side.top + index * step + pen.px(4)
        slot = Box(side.left + pen.px(10), top, side.right - pen.px(5), top + step - pen.px(5))
        if index == chosen:
            pen.fill(slot.inset(-2), pen.palette.accent)
        draw_slide(pen, slot, deck)
        pen.text(Box(side.left, top, slot.left, top + pen.px(9)), str(index + 1), size=6)


def paint_impress(pen: Pen, box: Box) -> None:
    """A slide editor with two tool bars, slide list and a side bar of properties."""
    deck, pal = pick_deck(pen), pen.palette
    box = draw_tool_bar(pen, draw_menu_bar(pen, box), num_rows=2)
    box = draw_status_bar(pen, box)
    side, box = box.cut_left(box.width * pen.rng.uniform(0.14, 0.2))
    draw_slide_list(pen, side, deck)
    if pen.rng.random() < 0.6:
        props, box = box.cut_right(box.width * 0.24)
        pen.fill(props, pal.panel)
        for cell in props.inset(pen.px(6)).grid(2, 6, pen.px(4)):
            pen.frame(cell.cut_top(cell.height * 0.6)[0], pal.edge, pal.paper)
            pen.text(cell.cut_bottom(cell.height * 0.35)[0], pen.word("tools"), size=6)
    pen.fill(box, mix(pal.panel, pal.edge, 0.5))
    draw_slide(pen, fit_slide(box), deck, blank=pen.rng.random() > pen.fullness)


def paint_ribbon_slides(pen: Pen, box: Box) -> None:
    """A slide editor with a ribbon, slide list and speaker notes below the slide."""
    deck, pal = pick_deck(pen), pen.palette
    box = draw_status_bar(pen, draw_ribbon(pen, box))
    side, box = box.cut_left(box.width * pen.rng.uniform(0.15, 0.22))
    draw_slide_list(pen, side, deck)
    notes, box = box.cut_bottom(box.height * pen.rng.uniform(0.1, 0.25))
    pen.fill(notes, pal.paper)
    pen.prose(notes.inset(pen.px(6)), size=6.5, color=pal.muted)
    pen.fill(box, mix(pal.panel, pal.edge, 0.5))
    draw_slide(pen, fit_slide(box), deck, blank=pen.rng.random() > pen.fullness)


def paint_sorter(pen: Pen, box: Box) -> None:
    """All slides of a deck as a grid, or a gallery of templates."""
    deck = pick_deck(pen)
    box = draw_tool_bar(pen, draw_menu_bar(pen, box))
    pen.fill(box, mix(pen.palette.panel, pen.palette.edge, 0.4))
    same = pen.rng.random() < 0.6
    columns = pen.rng.randint(3, 4)
    for cell in box.inset(pen.px(10)).grid(columns, columns, pen.px(8))[: pen.many(5, 16)]:
        draw_slide(pen, fit_slide(cell), deck if same else pick_deck(pen))


def paint_show(pen: Pen, box: Box) -> None:
    """A slide show: one slide on black."""
    pen.fill(box, (0, 0, 0))
    draw_slide(pen, fit_slide(box, 1.0, pen.rng.choice((16 / 9, 4 / 3))), pick_deck(pen))
