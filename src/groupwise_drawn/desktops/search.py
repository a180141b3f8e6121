"""Painters of looking things up: search pages, results, pictures, encyclopedias, new tabs."""

from groupwise_drawn.desktops.chrome import draw_scroll_bar
from groupwise_drawn.desktops.geometry import Box
from groupwise_drawn.desktops.pen import Pen
from groupwise_drawn.desktops.theme import WHITE, Color, mix, tint

__all__ = [
    "paint_encyclopedia",
    "paint_new_tab",
    "paint_picture_results",
    "paint_results",
    "paint_search_home",
]

LINK: Color = (26, 70, 190)


def link_color(pen: Pen) -> Color:
    """Blue on light pages, pale blue on dark ones."""
    return (138, 180, 248) if pen.palette.dark else LINK


def draw_field(pen: Pen, box: Box, text: str, *, button: bool = True) -> None:
    """Draw a search field with a text and perhaps a button at its right end."""
    pal = pen.palette
    pen.rounded(box, pal.paper, radius=pen.rng.choice((1, 8)), edge=pal.muted)
    pen.text(box.inset(pen.px(10), 0), text, size=8)
    if button:
        pen.fill(box.cut_right(box.height * 1.3)[0].inset(1), pal.accent)


def draw_logo(pen: Pen, box: Box, size: float) -> None:
    """Draw a site's name in large letters, each perhaps in its own colour."""
    name = pen.rng.choice(("Finder", "Seek", "Lookup", "Bingo", "Yonder", "Askme"))
    many, x, y = pen.rng.random() < 0.5, box.left, box
    if not many:
        pen.text(box, name, size=size, color=pen.palette.accent, align="center", bold=True)
        return
    x = (box.left + box.right) // 2 - pen.px(size * 0.28 * len(name))
    for index, letter in enumerate(name):
        color = tint(index * 0.37, 0.75, 0.8)
        x += pen.text(Box(x, y.top, box.right, y.bottom), letter, size=size, color=color, bold=True)


def paint_search_home(pen: Pen, box: Box) -> None:
    """An almost empty page: a logo and a search field, perhaps with suggestions below."""
    pal = pen.palette
    pen.fill(box, pal.paper)
    if pen.rng.random() < 0.2:
        pen.picture(box, "landscape")
    logo, rest = box.cut_top(box.height * pen.rng.uniform(0.25, 0.42))
    draw_logo(pen, logo.cut_bottom(pen.px(44))[0], pen.rng.choice((24, 32, 40)))
    row, rest = rest.cut_top(pen.px(18))
    field = row.middle(row.width * pen.rng.uniform(0.45, 0.65), row.height)
    draw_field(pen, field, pen.word("queries"))
    if pen.rng.random() < 0.4:
        drop = Box(
            field.left, field.bottom + 1, field.right, min(box.bottom, field.bottom + pen.px(90))
        )
        pen.frame(drop, pal.edge, pal.paper)
        for line in drop.inset(pen.px(10), pen.px(2)).grid(1, 7):
            pen.text(line, pen.word("queries"), size=7.5)
        return
    for cell in rest.cut_top(pen.px(30))[0].middle(pen.px(150), pen.px(13)).grid(2, 1, pen.px(8)):
        pen.button(cell, pen.rng.choice(("Search", "Feeling lucky", "Images")), color=pal.panel)


def paint_results(pen: Pen, box: Box) -> None:
    """A list of results: blue titles, green addresses, two lines each, perhaps an info box."""
    pal = pen.palette
    pen.fill(box, pal.paper)
    box = draw_scroll_bar(pen, box)
    head, box = box.cut_top(pen.px(34))
    logo, field = head.cut_left(pen.px(62))
    draw_logo(pen, logo, 14)
    draw_field(pen, field.cut_left(field.width * 0.6)[0].inset(0, pen.px(8)), pen.word("queries"))
    tabs, box = box.cut_top(pen.px(13))
    for cell in tabs.inset(pen.px(62), 0).grid(7, 1)[:5]:
        pen.text(
            cell,
            pen.rng.choice(("All", "Images", "News", "Videos", "Maps")),
            size=7,
            color=pal.muted,
        )
    pen.rule((box.left, box.top), (box.right, box.top), pal.edge)
    body = box.inset(pen.px(pen.rng.choice((14, 62))), pen.px(8))
    if pen.rng.random() < 0.55:
        card, body = body.cut_right(body.width * pen.rng.uniform(0.3, 0.4))
        draw_info_card(
            pen, card.inset(pen.px(10), 0).cut_top(card.height * pen.rng.uniform(0.5, 0.95))[0]
        )
    step = pen.px(pen.rng.choice((42, 50)))
    for row in range(max(1, body.height // step)):
        draw_result(
            pen, Box(body.left, body.top + row * step, body.right, body.top + (row + 1) * step)
        )


def draw_result(pen: Pen, box: Box) -> None:
    """Draw one result: address, title and a short text, now and then with a small picture."""
    if pen.rng.random() < 0.15:
        art, box = box.cut_left(box.height * 1.2)
        pen.picture(art.inset(pen.px(3)), pen.rng.choice(("landscape", "portrait", "object")))
    site, rest = box.cut_top(pen.px(9))
    title, rest = rest.cut_top(pen.px(12))
    pen.text(
        site,
        pen.word("sites"),
        size=6.5,
        color=tint(0.36, 0.6, 0.5) if not pen.palette.dark else pen.palette.muted,
    )
    pen.prose_line(
        title.cut_left(title.width * 0.75)[0], size=10, color=link_color(pen), kind="headlines"
    )
    pen.prose(rest, size=7, color=mix(pen.palette.ink, pen.palette.paper, 0.25), num_lines=2)


def draw_info_card(pen: Pen, box: Box) -> None:
    """Draw a fact box: a picture, a name, some lines."""
    pen.rounded(box, pen.palette.paper, edge=pen.palette.edge)
    art, rest = box.inset(1).cut_top(box.height * 0.4)
    pen.picture(art, pen.rng.choice(("portrait", "city", "landscape", "object")))
    title, rest = rest.inset(pen.px(6), pen.px(4)).cut_top(pen.px(16))
    pen.text(title, pen.word("names"), size=12, bold=True)
    pen.prose(rest, size=6.5)


def paint_picture_results(pen: Pen, box: Box) -> None:
    """Rows of pictures of differing widths below a search field."""
    pal = pen.palette
    pen.fill(box, pal.paper)
    box = draw_scroll_bar(pen, box)
    head, box = box.cut_top(pen.px(30))
    draw_logo(pen, head.cut_left(pen.px(62))[0], 14)
    draw_field(pen, head.inset(pen.px(66), pen.px(7)), pen.word("queries"))
    kind = pen.rng.choice(("object", "landscape", "portrait", "food"))
    for row in box.inset(pen.px(8), 0).grid(1, pen.rng.randint(3, 4), pen.px(5)):
        art, label = row.cut_top(row.height - pen.px(11))
        while art.width > pen.px(20):
            cell, art = art.cut_left(art.height * pen.rng.uniform(0.8, 1.7))
            pen.picture(Box(cell.left, cell.top, cell.right - pen.px(4), cell.bottom), kind)
            below = Box(cell.left, label.top, cell.right - pen.px(4), label.bottom)
            pen.text(below, pen.word("sites"), size=6, color=pal.muted)


def paint_encyclopedia(pen: Pen, box: Box) -> None:
    """An encyclopedia article: contents at the left, long text, a fact box at the right."""
    pal = pen.palette
    pen.fill(box, pal.paper)
    box = draw_scroll_bar(pen, box)
    head, box = box.cut_top(pen.px(26))
    draw_logo(pen, head.cut_left(pen.px(90))[0], 12)
    draw_field(pen, head.inset(pen.px(150), pen.px(7)), pen.word("queries"))
    side, body = box.cut_left(box.width * pen.rng.uniform(0.14, 0.2))
    for line in side.inset(pen.px(8)).grid(1, 20)[: pen.rng.randint(8, 18)]:
        pen.text(line, pen.word("tabs"), size=6.5, color=link_color(pen))
    body = body.inset(pen.px(8), pen.px(4))
    title, body = body.cut_top(pen.px(24))
    pen.text(title, pen.word("queries").capitalize(), size=16)
    pen.rule((body.left, body.top), (body.right, body.top), pal.edge)
    card, text = body.inset(0, pen.px(4)).cut_right(body.width * pen.rng.uniform(0.24, 0.33))
    draw_info_card(pen, card.cut_top(card.height * pen.rng.uniform(0.5, 1.0))[0])
    text = Box(text.left, text.top, text.right - pen.px(8), text.bottom)
    while text.height > pen.px(20):
        y = pen.prose(text, size=7, num_lines=pen.rng.randint(5, 14))
        section, text = Box(text.left, y, text.right, text.bottom).cut_top(pen.px(18))
        pen.text(section, pen.word("titles"), size=11)
        for _ in range(2):
            x = section.left + pen.rng.randint(0, max(0, section.width - pen.px(50)))
            pen.text(
                Box(x, text.top, text.right, text.top + 1), pen.word("names"), color=link_color(pen)
            )


def paint_new_tab(pen: Pen, box: Box) -> None:
    """A browser's start page: a search field, tiles of top sites, cards."""
    pal = pen.palette
    pen.fill(box, mix(pal.paper, pal.panel, pen.rng.choice((0.0, 0.4))))
    head, rest = box.cut_top(box.height * pen.rng.uniform(0.16, 0.35))
    draw_field(
        pen,
        head.cut_bottom(pen.px(30))[0].middle(box.width * 0.6, pen.px(17)),
        "Search the web",
        button=False,
    )
    body = rest.middle(rest.width * 0.68, rest.height)
    tiles, body = body.cut_top(pen.px(62))
    for cell in tiles.grid(pen.rng.randint(5, 8), 1, pen.px(8)):
        side = min(cell.width, cell.height - pen.px(14))
        tile = cell.cut_top(cell.height - pen.px(12))[0].middle(side, side)
        color = tint(pen.rng.random(), 0.7, 0.85) if pen.rng.random() < 0.7 else WHITE
        pen.rounded(tile, color, edge=pal.edge)
        pen.text(
            tile,
            pen.word("tabs")[:1],
            size=14,
            color=WHITE if color != WHITE else LINK,
            align="center",
            bold=True,
        )
        pen.text(cell.cut_bottom(pen.px(11))[0], pen.word("tabs"), size=6.5, align="center")
    for cell in body.cut_top(pen.px(80))[0].grid(4, 1, pen.px(10))[: pen.rng.randint(0, 4)]:
        pen.frame(cell, pal.edge, pal.paper)
        art, label = cell.cut_top(cell.height * 0.65)
        pen.picture(art, pen.rng.choice(("landscape", "city", "abstract")))
        pen.text(label.inset(pen.px(4), 0), pen.word("headlines"), size=6.5)
