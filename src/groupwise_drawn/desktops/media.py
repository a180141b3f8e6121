"""Painters of watching: players, video pages, libraries of films, courses."""

from groupwise_drawn.desktops.chrome import draw_menu_bar, draw_scroll_bar
from groupwise_drawn.desktops.geometry import Box
from groupwise_drawn.desktops.pen import Pen
from groupwise_drawn.desktops.pictures import Kind
from groupwise_drawn.desktops.theme import WHITE, Color, mix

__all__ = ["paint_library", "paint_player", "paint_playlist", "paint_screening", "paint_video_page"]

SCENES: tuple[Kind, ...] = ("landscape", "city", "portrait", "sea", "room", "food", "abstract")


def draw_film(pen: Pen, box: Box, *, controls: bool = True) -> None:
    """Draw a moving picture: a scene, black bars, subtitles, a line of controls."""
    pen.fill(box, (0, 0, 0))
    ratio = pen.rng.choice((16 / 9, 2.3, 4 / 3))
    width = min(box.width, box.height * ratio)
    picture = box.middle(width, width / ratio)
    pen.picture(picture, pen.rng.choice(SCENES))
    if pen.rng.random() < 0.4:
        line = picture.cut_bottom(picture.height * 0.2)[0]
        pen.text(
            line,
            pen.word("chat"),
            size=max(6, box.height / pen.unit * 0.045),
            color=WHITE,
            align="center",
            bold=True,
        )
    if pen.rng.random() < 0.3:
        center = ((box.left + box.right) / 2, (box.top + box.bottom) / 2)
        radius = max(3.0, box.height * 0.08)
        pen.disc(center, radius, (30, 30, 30))
        x, y = center
        pen.draw.polygon(
            [
                (x - radius / 3, y - radius / 2),
                (x - radius / 3, y + radius / 2),
                (x + radius / 2, y),
            ],
            fill=WHITE,
        )
    if controls:
        draw_controls(pen, box.cut_bottom(pen.px(18))[0], over=True)


def draw_controls(pen: Pen, bar: Box, *, over: bool = False) -> None:
    """Draw progress line and buttons; ``over`` a picture they are white on black."""
    back: Color = (16, 16, 16) if over else pen.palette.panel
    ink: Color = (230, 230, 230) if over else pen.palette.ink
    pen.fill(bar, back)
    line, buttons = bar.cut_top(bar.height * 0.35)
    track = line.inset(pen.px(5), max(0, line.height // 2 - 1))
    pen.fill(track, mix(back, ink, 0.35))
    played = track.cut_left(track.width * pen.rng.random())[0]
    pen.fill(played, pen.palette.accent)
    pen.disc((played.right, (track.top + track.bottom) / 2), pen.px(2.5), pen.palette.accent)
    for cell in buttons.cut_left(pen.px(50))[0].grid(4, 1):
        pen.icon(cell.middle(pen.px(6), pen.px(6)), ink)
    clock = f"{pen.rng.randint(0, 59)}:{pen.rng.randint(0, 59):02d} / {pen.rng.randint(60, 150)}:00"
    pen.text(buttons.inset(pen.px(56), 0), clock, size=7, color=ink)
    pen.icons(buttons.cut_right(pen.px(50))[0], size=6, gap=5, count=3)


def paint_screening(pen: Pen, box: Box) -> None:
    """A film over the whole screen."""
    draw_film(pen, box, controls=pen.rng.random() < 0.6)


def paint_player(pen: Pen, box: Box) -> None:
    """A desktop player: menus above, picture, controls below."""
    box = draw_menu_bar(pen, box, num_menus=6)
    bar, box = box.cut_bottom(pen.px(28))
    draw_film(pen, box, controls=False)
    draw_controls(pen, bar)


def paint_playlist(pen: Pen, box: Box) -> None:
    """A player or course with a list of episodes beside the picture."""
    pal = pen.palette
    side, box = box.cut_right(box.width * pen.rng.uniform(0.22, 0.34))
    pen.fill(side, pal.panel)
    chosen = pen.rng.randrange(8)
    for index, cell in enumerate(side.inset(pen.px(5)).grid(1, pen.rng.randint(9, 16), 1)):
        if index == chosen:
            pen.fill(cell, mix(pal.panel, pal.accent, 0.4))
        pen.text(cell.inset(pen.px(4), 0), f"{index + 1}. {pen.word('videos')}", size=7)
    bar, box = box.cut_bottom(pen.px(26))
    draw_film(pen, box, controls=False)
    draw_controls(pen, bar)


def draw_clip(pen: Pen, cell: Box, *, beside: bool) -> None:
    """Draw one suggestion: a still with its length, the title beside or below."""
    art, text = cell.cut_left(cell.width * 0.46) if beside else cell.cut_top(cell.height * 0.7)
    pen.picture(art, pen.rng.choice(SCENES))
    stamp = art.inset(2).cut_bottom(pen.px(8))[0].cut_right(pen.px(18))[0]
    pen.fill(stamp, (15, 15, 15))
    pen.text(
        stamp,
        f"{pen.rng.randint(1, 59)}:{pen.rng.randint(0, 59):02d}",
        size=6,
        color=WHITE,
        align="center",
    )
    upper, lower = text.inset(pen.px(4), 1).cut_top(min(text.height, pen.px(10)))
    pen.text(upper, pen.word("videos"), size=7.5, bold=True)
    pen.text(
        lower.cut_top(pen.px(9))[0],
        f"{pen.rng.randint(1, 900)}K views",
        size=6.5,
        color=pen.palette.muted,
    )


def paint_video_page(pen: Pen, box: Box) -> None:
    """A video page: the film, its title and comments, suggestions at the right."""
    pal = pen.palette
    head, box = box.cut_top(pen.px(20))
    pen.fill(head, pal.paper)
    pen.fill(box, pal.paper)
    pen.rounded(head.inset(pen.px(5)).cut_left(pen.px(14))[0], pal.accent, radius=3)
    pen.text(
        head.inset(pen.px(24), 0), pen.rng.choice(("Tubeo", "iClip", "Vidland")), size=10, bold=True
    )
    field = head.middle(head.width * 0.4, head.height - pen.px(7))
    pen.rounded(field, pal.paper, radius=7, edge=pal.edge)
    pen.text(field.inset(pen.px(8), 0), pen.word("videos"), size=7)
    side, main = (
        draw_scroll_bar(pen, box)
        .inset(pen.px(8), pen.px(4))
        .cut_right(box.width * pen.rng.uniform(0.26, 0.36))
    )
    for cell in side.inset(pen.px(8), 0).grid(1, pen.rng.randint(6, 8), pen.px(5)):
        draw_clip(pen, cell, beside=True)
    film, below = main.cut_top(main.width * 9 / 16)
    draw_film(pen, film)
    title, below = below.inset(0, pen.px(4)).cut_top(pen.px(17))
    pen.text(title, pen.word("videos"), size=12, bold=True)
    who, below = below.cut_top(pen.px(18))
    pen.disc((who.left + pen.px(8), (who.top + who.bottom) / 2), pen.px(7), pal.edge)
    pen.text(who.inset(pen.px(20), 0), pen.word("names"), size=8)
    pen.button(who.cut_right(pen.px(56))[0].inset(pen.px(2)), "Subscribe")
    pen.prose(below.inset(0, pen.px(4)), size=7)


def paint_library(pen: Pen, box: Box) -> None:
    """A catalogue of films: rows of posters or stills, perhaps under a large one."""
    pal = pen.palette
    pen.fill(box, pal.paper)
    if pen.rng.random() < 0.5:
        hero, box = box.cut_top(box.height * pen.rng.uniform(0.35, 0.5))
        pen.picture(hero, pen.rng.choice(SCENES))
        name, _ = hero.inset(pen.px(14)).cut_bottom(pen.px(50))
        pen.text(name.cut_top(pen.px(28))[0], pen.word("videos"), size=20, color=WHITE, bold=True)
        pen.button(name.cut_bottom(pen.px(16))[0].cut_left(pen.px(50))[0], "Play", color=WHITE)
    if pen.rng.random() < 0.4:
        rail, box = box.cut_left(pen.px(50))
        for cell in rail.inset(pen.px(5)).grid(1, 9)[:6]:
            pen.text(cell, pen.word("tabs"), size=7)
    posters = pen.rng.random() < 0.4
    for row in box.inset(pen.px(10), pen.px(4)).grid(1, pen.rng.randint(2, 3), pen.px(4)):
        label, row = row.cut_top(pen.px(13))
        pen.text(label, pen.word("videos"), size=9, bold=True)
        for cell in row.grid(
            pen.rng.randint(6, 8) if posters else pen.rng.randint(4, 5), 1, pen.px(5)
        ):
            if posters:
                pen.picture(cell, pen.rng.choice(SCENES))
            else:
                draw_clip(pen, cell, beside=False)
