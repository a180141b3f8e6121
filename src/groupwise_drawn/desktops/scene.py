"""Puts a desktop together: wallpaper, symbols, windows over one another, popups, task bar.

The foremost window is of the asked activity; those behind it are of others.
"""

import random
from dataclasses import dataclass
from typing import Literal

from PIL import Image

from groupwise_drawn.desktops.activities import ACTIVITIES
from groupwise_drawn.desktops.chrome import draw_browser_bars, draw_title_bar
from groupwise_drawn.desktops.geometry import Box
from groupwise_drawn.desktops.painters import PAINTERS, Variant
from groupwise_drawn.desktops.pen import Pen
from groupwise_drawn.desktops.pictures import paint_gradient
from groupwise_drawn.desktops.popups import draw_pointer, draw_popups
from groupwise_drawn.desktops.theme import Color, Theme, mix, pick_palette, tint

__all__ = ["Screen", "compose_screen"]

HARD_SHARE = 0.5  # below this share of the screen a foremost window makes the screen hard


@dataclass(frozen=True)
class Screen:
    """A drawn desktop; hard when its activity fills less than half of it or others show."""

    image: Image.Image
    difficulty: Literal["easy", "hard"]


def compose_screen(
    activity: str,
    *,
    theme: Theme,
    rng: random.Random,
    size: tuple[int, int],
    clutter: float,
    variant: Variant | None = None,
) -> Screen:
    """Draw one screen of ``size`` (width, height) pixels in a theme.

    ``clutter`` in [0, 1] scales windows behind, popups and floating; ``variant`` fixes the look,
    otherwise it is picked.
    """
    width, height = size
    screen = Box(0, 0, width, height)
    unit = min(width / 640, height / 480) * theme.zoom
    palette = pick_palette(theme, rng)
    variant = variant or rng.choice(PAINTERS[activity])
    maximised = rng.random() < 0.95 - 0.5 * clutter
    bare = maximised and variant.frame == "bare" and rng.random() < 0.75
    image = Image.new("RGB", size, theme.wallpaper[0])
    pen = Pen(image, rng, theme, palette, unit)
    desk = screen if bare else leave_bars(pen, screen)
    window, others = desk, list[Box]()
    if not maximised:
        draw_wallpaper(pen, screen)
        others = place_others(pen, desk, activity, clutter)
        window = place_window(rng, desk, clutter)
    draw_window(pen, window, variant, bare=bare, clutter=clutter)
    draw_popups(pen, desk, window, clutter)
    if not bare:
        draw_bar(pen, screen, desk)
    draw_pointer(pen, screen)
    return Screen(image, judge_difficulty(screen, desk, window, others))


def judge_difficulty(
    screen: Box, desk: Box, window: Box, others: list[Box]
) -> Literal["easy", "hard"]:
    """Hard when the window is small or another one shows beside it."""
    shown = window.clip(screen)
    small = shown.width * shown.height < HARD_SHARE * screen.width * screen.height
    beside = any(not other.clip(desk).within(window) for other in others)
    return "hard" if small or beside else "easy"


def place_window(rng: random.Random, desk: Box, clutter: float) -> Box:
    """A floating window, smaller and further out where there is more clutter."""
    low = 0.82 - 0.32 * clutter
    width = round(desk.width * rng.uniform(low, 0.96))
    height = round(desk.height * rng.uniform(low, 0.96))
    over = 0.12 * clutter
    slack_x, slack_y = desk.width - width, desk.height - height
    left = desk.left + round(rng.uniform(-over * width, slack_x + over * width))
    top = desk.top + max(0, round(rng.uniform(-0.02 * height, slack_y + over * height)))
    return Box(left, top, left + width, top + height)


def place_others(pen: Pen, desk: Box, activity: str, clutter: float) -> list[Box]:
    """Draw none to three windows of other activities; returns where they lie."""
    num_others = sum(pen.rng.random() < 0.3 + 0.4 * clutter for _ in range(1 + round(2 * clutter)))
    boxes: list[Box] = []
    for _ in range(num_others):
        other = pen.rng.choice([name for name in ACTIVITIES if name != activity])
        box = place_window(pen.rng, desk, min(1.0, clutter + 0.3))
        draw_window(pen, box, pen.rng.choice(PAINTERS[other]), bare=False, clutter=clutter)
        boxes.append(box)
    return boxes


def draw_window(pen: Pen, box: Box, variant: Variant, *, bare: bool, clutter: float) -> None:
    """Paint a window by itself and lay it on the desktop with its border."""
    rng = pen.rng
    # With clutter, programs follow the desktop's light or dark more often than their own habit.
    tone = "any" if rng.random() < 0.1 + 0.3 * clutter else variant.tone
    if tone == "any" and variant.frame == "browser" and rng.random() < 0.6:
        tone = "light"  # most web pages are light even on dark desktops
    palette = pick_palette(pen.theme, rng, tone)
    fullness = rng.choice((0.05, 0.35, 0.7, 1.0, 1.0, 1.0))
    han = rng.random() < pen.theme.han and not variant.latin
    image = Image.new("RGB", (max(8, box.width), max(8, box.height)), palette.paper)
    inner = Pen(image, rng, pen.theme, palette, pen.unit, fullness, han)
    area = Box(0, 0, image.width, image.height)
    if variant.frame == "browser":
        area = draw_browser_bars(inner, area)
    elif not bare:
        area = draw_title_bar(inner, area, pick_title(inner))
    variant.paint(inner, area)
    pen.frame(box.inset(-1).shift(1, 1), mix(palette.ink, palette.panel, 0.4))
    pen.image.paste(image, (box.left, box.top))


def pick_title(pen: Pen) -> str:
    """A file name with a suffix or a heading: what title bars show."""
    if pen.rng.random() < 0.5:
        return pen.word("titles")
    return f"{pen.word('files')} - {pen.word('tabs')}"


def draw_wallpaper(pen: Pen, screen: Box) -> None:
    """Cover the screen with the theme's wallpaper and perhaps a column of symbols."""
    theme, corners = pen.theme, pen.theme.wallpaper
    if theme.wallpaper_kind == "plain":
        pen.fill(screen, corners[0])
    else:
        pen.image.paste(paint_gradient(corners, (screen.width, screen.height)), (0, 0))
    if theme.wallpaper_kind == "hills":
        for index, share in enumerate((0.55, 0.72)):
            top = round(screen.height * share)
            ring = (
                -screen.width * (0.3 + index),
                top,
                screen.width * (1.4 - 0.3 * index),
                top + screen.height,
            )
            pen.draw.ellipse(ring, fill=mix(corners[2], (0, 0, 0), 0.2 + 0.2 * index))
    elif theme.wallpaper_kind == "rays":
        for index in range(6):
            x = screen.width * (index + 0.5) / 6
            points = [(x, screen.height), (x + screen.width * 0.4, 0), (x + screen.width * 0.47, 0)]
            pen.draw.polygon(points, fill=mix(corners[index % 4], corners[3], 0.5))
    if theme.has_icons:
        draw_desk_icons(pen, screen)


def draw_desk_icons(pen: Pen, screen: Box) -> None:
    """Draw the symbols along the left edge with their names."""
    step = pen.px(42)
    for row in range(min(pen.rng.randint(2, 8), (screen.height - pen.px(30)) // step)):
        slot = Box(pen.px(4), pen.px(16) + row * step, pen.px(46), pen.px(16) + (row + 1) * step)
        art, label = slot.cut_top(pen.px(26))
        pen.rounded(art.middle(pen.px(20), pen.px(20)), tint(pen.rng.random(), 0.6, 0.85))
        pen.text(label, pen.word("tabs"), size=7, color=(250, 250, 250), align="center")


def bar_colors(pen: Pen) -> tuple[Color, Color]:
    """Background and ink of the task bar."""
    if pen.theme.bar_dark:
        return mix((16, 17, 20), pen.theme.accent, 0.08), (235, 235, 235)
    return mix((238, 240, 243), pen.theme.accent, 0.06), (30, 30, 30)


def leave_bars(pen: Pen, screen: Box) -> Box:
    """The part of the screen that the bars leave to windows."""
    if pen.theme.bar == "bottom":
        return screen.cut_bottom(pen.px(17))[1]
    if pen.theme.bar == "top":
        return screen.cut_top(pen.px(13))[1]
    return screen.cut_top(pen.px(11))[1].cut_bottom(pen.px(6))[1]


def draw_bar(pen: Pen, screen: Box, desk: Box) -> None:
    """Draw the task bar, panel or dock with open programs and the clock."""
    back, ink = bar_colors(pen)
    top = Box(0, 0, screen.width, desk.top)
    bottom = Box(0, desk.bottom, screen.width, screen.height)
    bar = bottom if pen.theme.bar == "bottom" else top
    pen.fill(bar, back)
    clock = f"{pen.rng.randint(0, 23)}:{pen.rng.randint(0, 59):02d}"
    pen.text(bar.inset(pen.px(5), 0), clock, size=7.5, color=ink, align="right")
    if pen.theme.bar == "dock":
        draw_dock(pen, screen, back)
        return
    if pen.theme.bar == "top":
        pen.text(bar.inset(pen.px(5), 0), "Activities", size=7.5, color=ink)
        return
    start, rest = bar.cut_left(pen.px(18))
    pen.fill(start.inset(pen.px(4)), pen.theme.accent)
    labelled = pen.theme.has_icons
    width = pen.px(80 if labelled else 20)
    for index in range(pen.rng.randint(1, 5)):
        slot = Box(
            rest.left + index * width,
            rest.top + 1,
            rest.left + (index + 1) * width - 2,
            rest.bottom - 1,
        )
        if slot.right > rest.right - pen.px(40):
            break
        pen.fill(slot, mix(back, pen.theme.accent, 0.55 if index == 0 else 0.12))
        pen.fill(slot.inset(pen.px(4)).cut_left(pen.px(8))[0], tint(pen.rng.random(), 0.7, 0.85))
        if labelled:
            pen.text(slot.inset(pen.px(15), 0), pen.word("tabs"), size=7, color=ink)


def draw_dock(pen: Pen, screen: Box, back: Color) -> None:
    """Draw a floating row of program symbols at the bottom."""
    num_programs, side = pen.rng.randint(6, 12), pen.px(17)
    shelf = Box(0, screen.bottom - pen.px(26), screen.right, screen.bottom - pen.px(3))
    shelf = shelf.middle((side + pen.px(4)) * num_programs + pen.px(6), shelf.height)
    pen.rounded(shelf, mix(back, pen.theme.wallpaper[2], 0.3), radius=6)
    for cell in shelf.inset(pen.px(3), 0).grid(num_programs, 1):
        pen.rounded(cell.middle(side, side), tint(pen.rng.random(), 0.6, 0.9))
