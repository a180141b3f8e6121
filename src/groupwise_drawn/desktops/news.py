"""Painters of news and money: front pages, articles, market screens, weather."""

from groupwise_drawn.desktops.chrome import draw_scroll_bar
from groupwise_drawn.desktops.geometry import Box
from groupwise_drawn.desktops.pen import Pen
from groupwise_drawn.desktops.sheets import draw_walk
from groupwise_drawn.desktops.theme import WHITE, Color, mix, tint

__all__ = ["paint_article", "paint_front_page", "paint_markets", "paint_weather"]

UP: Color = (30, 160, 90)
DOWN: Color = (210, 60, 60)


def draw_masthead(pen: Pen, box: Box) -> Box:
    """Draw the paper's name and its sections; returns the page below."""
    pal = pen.palette
    bar, rest = box.cut_top(pen.px(pen.rng.choice((24, 36))))
    color = pen.rng.choice((pal.paper, pal.accent, (20, 20, 20)))
    pen.fill(rest, pal.paper)
    pen.fill(bar, color)
    ink: Color = WHITE if sum(color) < 420 else (20, 20, 20)
    align = pen.rng.choice(("center", "left"))
    name = pen.rng.choice(("The Daily Post", "Morning Herald", "WORLD NEWS", "City Times"))
    pen.text(bar.inset(pen.px(10), 0), name, size=17, color=ink, align=align, bold=True)
    links, rest = rest.cut_top(pen.px(13))
    pen.fill(links, mix(pal.paper, pal.panel, 0.7))
    for cell, label in zip(
        links.inset(pen.px(10), 0).grid(6, 1),
        ("World", "Sport", "Business", "Science", "Culture", "Opinion"),
        strict=True,
    ):
        pen.text(cell, label, size=7.5)
    return rest


def draw_story(pen: Pen, box: Box, *, size: float, picture: bool) -> None:
    """Draw a story: perhaps a picture, a bold headline over two lines, some text."""
    pal = pen.palette
    if picture:
        art, box = box.cut_top(box.height * 0.5)
        pen.picture(art, pen.rng.choice(("city", "portrait", "landscape", "abstract")))
    for line in range(2):
        head, box = box.cut_top(pen.px(size * 1.3))
        if line == 0 or pen.rng.random() < 0.7:
            pen.text(head, pen.word("headlines"), size=size, bold=True)
    pen.prose(box, size=6.5, color=mix(pal.ink, pal.paper, 0.3))


def paint_front_page(pen: Pen, box: Box) -> None:
    """A front page: one large story and columns of smaller ones."""
    box = draw_scroll_bar(pen, draw_masthead(pen, box)).inset(pen.px(10), pen.px(6))
    upper, lower = box.cut_top(box.height * pen.rng.uniform(0.45, 0.6))
    lead, side = upper.cut_left(upper.width * pen.rng.uniform(0.5, 0.66))
    draw_story(
        pen, Box(lead.left, lead.top, lead.right - pen.px(8), lead.bottom), size=14, picture=True
    )
    for cell in side.grid(1, pen.rng.randint(3, 4), pen.px(5)):
        art, text = cell.cut_left(cell.width * 0.33)
        if pen.rng.random() < 0.6:
            pen.picture(art.inset(1), pen.rng.choice(("city", "portrait", "landscape")))
        draw_story(pen, text.inset(pen.px(4), 0), size=8.5, picture=False)
    for cell in lower.inset(0, pen.px(6)).grid(pen.rng.randint(3, 4), 1, pen.px(8)):
        draw_story(pen, cell, size=9, picture=pen.rng.random() < 0.7)


def paint_article(pen: Pen, box: Box) -> None:
    """One article: a large headline, a wide picture, long text, advertisements at the side."""
    box = draw_scroll_bar(pen, draw_masthead(pen, box))
    side, body = box.inset(pen.px(12), pen.px(8)).cut_right(
        box.width * pen.rng.choice((0.02, 0.26))
    )
    for cell in side.inset(pen.px(8), 0).grid(1, 3, pen.px(8)):
        pen.picture(cell, pen.rng.choice(("object", "abstract")))
    body = body.middle(body.width * pen.rng.uniform(0.7, 1.0), body.height)
    for _ in range(2):
        head, body = body.cut_top(pen.px(22))
        pen.text(head, pen.word("headlines"), size=17, bold=True)
    who, body = body.cut_top(pen.px(14))
    pen.text(
        who,
        f"By {pen.word('names')}, {pen.rng.randint(1, 28)} March",
        size=7.5,
        color=pen.palette.muted,
    )
    if pen.rng.random() < 0.75:
        art, body = body.cut_top(body.height * pen.rng.uniform(0.4, 0.65))
        pen.picture(art, pen.rng.choice(("city", "portrait", "landscape")))
    pen.prose(body.inset(0, pen.px(6)), size=pen.rng.choice((8, 9.5)), leading=1.7)


def paint_markets(pen: Pen, box: Box) -> None:
    """A market screen: a large chart, a list of papers with changes, perhaps a table."""
    pal = pen.palette
    pen.fill(box, pal.paper)
    strip, box = box.cut_top(pen.px(16))
    pen.fill(strip, pal.panel)
    for cell in strip.grid(6, 1, pen.px(4)):
        rise = pen.rng.uniform(-3, 3)
        pen.text(
            cell.inset(pen.px(4), 0),
            f"{pen.word('tickers')} {rise:+.2f}%",
            size=7,
            color=UP if rise > 0 else DOWN,
        )
    side, box = box.cut_right(box.width * pen.rng.uniform(0.22, 0.34))
    for row in side.inset(pen.px(6)).grid(1, 14, 1):
        rise = pen.rng.uniform(-4, 4)
        pen.text(row, pen.word("tickers"), size=7.5, bold=True)
        chip = row.cut_right(pen.px(34))[0].inset(0, 1)
        pen.rounded(chip, UP if rise > 0 else DOWN, radius=2)
        pen.text(chip, f"{rise:+.2f}", size=7, color=WHITE, align="center")
    head, box = box.inset(pen.px(8), pen.px(4)).cut_top(pen.px(26))
    pen.text(
        head,
        f"{pen.word('tickers')}  {pen.rng.randint(20, 900)}.{pen.rng.randint(10, 99)}",
        size=16,
        bold=True,
    )
    chart, table = box.cut_top(box.height * pen.rng.choice((0.55, 0.75, 1.0)))
    for line in chart.grid(1, 5):
        pen.rule((line.left, line.top), (line.right, line.top), pal.edge)
    if pen.rng.random() < 0.5:
        draw_walk(pen, chart, pen.rng.choice((UP, DOWN, pal.accent)), filled=True)
    else:
        draw_candles(pen, chart)
    for story in table.inset(0, pen.px(5)).grid(2, 2, pen.px(8)):
        draw_story(pen, story, size=8.5, picture=False)


def draw_candles(pen: Pen, box: Box) -> None:
    """Draw a price history as red and green candles."""
    level = 0.5
    for cell in box.grid(pen.rng.randint(28, 50), 1, 1):
        opened, level = level, min(0.9, max(0.1, level + pen.rng.gauss(0, 0.06)))
        color = UP if level < opened else DOWN
        high, low = sorted((box.top + opened * box.height, box.top + level * box.height))
        x = (cell.left + cell.right) // 2
        pen.rule((x, high - pen.px(5)), (x, low + pen.px(5)), color)
        pen.fill(Box(cell.left, round(high), max(cell.left + 1, cell.right), round(low) + 1), color)


def paint_weather(pen: Pen, box: Box) -> None:
    """A weather page: a coloured panel with degrees, a week of days, headlines below."""
    box = draw_scroll_bar(pen, draw_masthead(pen, box)).inset(pen.px(12), pen.px(6))
    panel, rest = box.cut_top(box.height * pen.rng.uniform(0.5, 0.75))
    if pen.rng.random() < 0.4:
        side, panel = panel.cut_right(panel.width * 0.3)
        draw_story(pen, side.inset(pen.px(6), 0), size=9, picture=True)
    sky = tint(pen.rng.uniform(0.52, 0.68), pen.rng.uniform(0.3, 0.8), pen.rng.uniform(0.25, 0.8))
    pen.rounded(panel, sky)
    head, days = panel.inset(pen.px(10)).cut_top(panel.height * 0.45)
    pen.disc((head.left + pen.px(20), head.top + head.height / 2), pen.px(13), (250, 205, 70))
    pen.text(
        head.inset(pen.px(45), 0), f"{pen.rng.randint(-20, 35)} C", size=28, color=WHITE, bold=True
    )
    pen.text(head, pen.word("cities"), size=13, color=WHITE, align="right")
    for cell in days.grid(7, 1, pen.px(3)):
        pen.fill(cell, mix(sky, WHITE, 0.12))
        upper, lower = cell.cut_top(cell.height * 0.6)
        pen.disc(
            ((upper.left + upper.right) / 2, (upper.top + upper.bottom) / 2),
            pen.px(5),
            pen.rng.choice(((250, 205, 70), (220, 225, 230))),
        )
        pen.text(lower, str(pen.rng.randint(-20, 35)), size=9, color=WHITE, align="center")
    for cell in rest.inset(0, pen.px(6)).grid(3, 1, pen.px(8)):
        draw_story(pen, cell, size=9, picture=False)
