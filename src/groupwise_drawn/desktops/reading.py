"""Painters of reading: paper viewers, two-page spreads, e-books, papers in a browser."""

from groupwise_drawn.desktops.chrome import draw_menu_bar, draw_scroll_bar, draw_tool_bar
from groupwise_drawn.desktops.geometry import Box
from groupwise_drawn.desktops.pen import Pen
from groupwise_drawn.desktops.sheets import draw_chart
from groupwise_drawn.desktops.theme import WHITE, Color, mix, tint

__all__ = ["paint_browser_paper", "paint_ebook", "paint_spread", "paint_viewer"]

INK: Color = (35, 35, 38)


def draw_paper(pen: Pen, page: Box, *, first: bool, size: float = 6) -> None:
    """Draw a page of a paper: title on the first, then one or two dense columns with figures."""
    pen.fill(page, WHITE)
    body = page.inset(round(page.width * 0.09), round(page.width * 0.08))
    if first:
        title, body = body.cut_top(page.width * 0.09)
        pen.prose_line(
            title.inset(title.width // 6, 0), size=size * 1.9, color=INK, kind="headlines"
        )
        who, body = body.cut_top(page.width * 0.05)
        pen.text(
            who,
            f"{pen.word('names')}, {pen.word('names')} and {pen.word('names')}",
            size=size,
            color=INK,
            align="center",
        )
        abstract, body = body.cut_top(page.width * 0.16)
        pen.prose(abstract.inset(abstract.width // 8, 2), size=size * 0.9, color=INK)
    num_columns = pen.rng.choice((1, 2, 2))
    for column in body.grid(num_columns, 1, round(page.width * 0.05)):
        if pen.rng.random() < 0.45:
            figure, column = column.cut_top(column.width * 0.5)
            draw_chart(pen, figure)
        while column.height > pen.px(size * 3):
            y = pen.prose(
                column, size=size, color=INK, leading=1.35, num_lines=pen.rng.randint(8, 20)
            )
            head, column = Box(column.left, y, column.right, column.bottom).cut_top(
                pen.px(size * 2)
            )
            pen.text(
                head,
                f"{pen.rng.randint(1, 6)} {pen.word('titles')}",
                size=size * 1.2,
                color=INK,
                bold=True,
            )


def draw_page_rail(pen: Pen, side: Box) -> None:
    """Draw the column of small pages."""
    pen.fill(side, pen.palette.panel)
    step = round(side.width * 1.15)
    for index in range(max(1, side.height // max(1, step))):
        top = side.top + index * step + pen.px(5)
        page = Box(side.left, top, side.right, top + step - pen.px(8)).middle(
            side.width * 0.66, step - pen.px(8)
        )
        pen.frame(page.inset(-1), pen.palette.accent if index == 1 else pen.palette.edge, WHITE)
        for line in page.inset(pen.px(4)).grid(1, 14, 1)[:13]:
            pen.fill(
                line.cut_left(line.width * pen.rng.uniform(0.5, 1))[0].cut_top(1)[0],
                (165, 165, 165),
            )


def draw_pages(pen: Pen, area: Box) -> None:
    """Draw the open page, scrolled by chance, with the next one below."""
    width = round(area.width * pen.rng.uniform(0.5, 0.96))
    sheet = area.middle(width, area.height)
    height = round(width * 1.35)
    top = area.top + pen.px(8) - (pen.rng.randint(0, height) if pen.rng.random() < 0.6 else 0)
    size = max(3.5, min(8.0, width / pen.unit / 62))
    first = pen.rng.random() < 0.6
    while top < area.bottom:
        page = Box(sheet.left, top, sheet.right, top + height)
        shown = page.clip(area)
        draw_paper(pen, shown, first=first and top >= area.top, size=size)
        top, first = top + height + pen.px(10), False


def paint_viewer(pen: Pen, box: Box) -> None:
    """A document viewer: tool bar, rail of small pages, the paper on grey."""
    if pen.rng.random() < 0.6:
        box = draw_menu_bar(pen, box, num_menus=6)
    box = draw_tool_bar(pen, box)
    if pen.rng.random() < 0.65:
        side, box = box.cut_left(box.width * pen.rng.uniform(0.13, 0.2))
        draw_page_rail(pen, side)
    box = draw_scroll_bar(pen, box)
    pen.fill(box, mix(pen.palette.edge, (100, 100, 105), pen.rng.random()))
    draw_pages(pen, box)


def paint_browser_paper(pen: Pen, box: Box) -> None:
    """A paper opened in a browser: a dark bar with page number and zoom above it."""
    level = pen.rng.choice((50, 58, 230))
    bar, box = box.cut_top(pen.px(16))
    pen.fill(bar, (level, level, level + 4))
    ink: Color = WHITE if level < 128 else INK
    pen.text(
        bar.inset(pen.px(30), 0),
        f"{pen.rng.randint(1, 9)} / {pen.rng.randint(9, 40)}",
        size=7.5,
        color=ink,
    )
    pen.text(bar, f"{pen.rng.randint(5, 15) * 10}%", size=7.5, color=ink, align="center")
    if pen.rng.random() < 0.5:
        side, box = box.cut_left(box.width * 0.16)
        draw_page_rail(pen, side)
    pen.fill(box, mix((level, level, level), (120, 120, 124), 0.4))
    draw_pages(pen, draw_scroll_bar(pen, box))


def paint_spread(pen: Pen, box: Box) -> None:
    """Two pages side by side."""
    box = draw_tool_bar(pen, box)
    pen.fill(box, mix(pen.palette.edge, (60, 60, 64), pen.rng.random()))
    height = min(box.height * 0.96, box.width * 0.48 * 1.35)
    for index, page in enumerate(box.middle(height / 1.35 * 2.02, height).grid(2, 1, 2)):
        draw_paper(pen, page, first=index == 0, size=max(3.5, page.width / pen.unit / 52))


def paint_ebook(pen: Pen, box: Box) -> None:
    """A book: warm or dark paper, large letters, wide margins, perhaps chapters at the left."""
    style = pen.rng.randrange(3)
    paper = (tint(0.11, 0.14, 0.96), (28, 28, 30), (253, 253, 253))[style]
    ink: Color = (190, 190, 185) if style == 1 else (50, 42, 35)
    pen.fill(box, paper)
    if pen.rng.random() < 0.4:
        side, box = box.cut_left(box.width * 0.22)
        pen.fill(side, mix(paper, ink, 0.1))
        for line in side.inset(pen.px(8)).grid(1, 16)[: pen.rng.randint(6, 15)]:
            pen.text(line, pen.word("titles"), size=7.5, color=ink)
    foot, box = box.cut_bottom(pen.px(14))
    pen.text(
        foot, f"{pen.rng.randint(1, 99)} %", size=7, color=mix(paper, ink, 0.5), align="center"
    )
    columns = pen.rng.choice((1, 2))
    for index, column in enumerate(
        box.inset(round(box.width * 0.08), pen.px(14)).grid(columns, 1, round(box.width * 0.08))
    ):
        if index == 0 and pen.rng.random() < 0.5:
            head, column = column.cut_top(pen.px(44))
            pen.text(head, pen.word("titles"), size=17, color=ink, align="center")
        pen.prose(column, size=pen.rng.choice((8, 9, 10.5)), color=ink, leading=1.75)
