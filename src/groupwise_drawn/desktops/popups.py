"""Small things that lie over windows: dialogs, menus, notices, chats, little films, the pointer.

They disturb the view of a screen but never decide its activity.
"""

from groupwise_drawn.desktops.feeds import draw_bubbles
from groupwise_drawn.desktops.geometry import Box
from groupwise_drawn.desktops.pen import Pen
from groupwise_drawn.desktops.theme import mix

__all__ = ["draw_pointer", "draw_popups"]


def draw_dialog(pen: Pen, box: Box) -> None:
    """A question or a form in the middle of the window."""
    pal = pen.palette
    width = min(box.width * 0.8, pen.px(pen.rng.randint(130, 260)))
    frame = box.middle(width, min(box.height * 0.8, pen.px(pen.rng.randint(60, 190))))
    frame = frame.shift(pen.rng.randint(-box.width // 8, box.width // 8), 0)
    pen.frame(frame, pal.muted, pal.panel)
    head, body = frame.inset(1).cut_top(pen.px(13))
    pen.fill(head, pen.rng.choice((pal.accent, mix(pal.panel, pal.edge, 0.6))))
    pen.text(head.inset(pen.px(5), 0), pen.word("dialogs"), size=7.5)
    low, body = body.inset(pen.px(8), pen.px(5)).cut_bottom(pen.px(15))
    pen.button(low.cut_right(pen.px(48))[0], "OK")
    pen.button(low.shift(-pen.px(54), 0).cut_right(pen.px(48))[0], "Cancel", color=pal.edge)
    listed = pen.rng.random() < 0.4
    for row in body.grid(1, max(1, body.height // pen.px(14)), pen.px(2)):
        if listed:
            pen.fill(row, pal.paper)
            pen.text(row.inset(pen.px(4), 0), pen.word("commands"), size=7.5)
            continue
        label, field = row.cut_left(row.width * 0.35)
        pen.text(label, pen.word("tools"), size=7.5)
        pen.frame(field, pal.edge, pal.paper)


def draw_menu(pen: Pen, box: Box) -> None:
    """An open menu somewhere in the window."""
    pal = pen.palette
    width, height = pen.px(pen.rng.randint(80, 120)), pen.px(12 * pen.rng.randint(6, 14))
    left = box.left + pen.rng.randint(0, max(0, box.width - width))
    top = box.top + pen.rng.choice((pen.px(25), pen.rng.randint(0, max(0, box.height - height))))
    frame = Box(left, top, left + width, top + height).clip(box)
    pen.frame(frame, pal.muted, pal.panel)
    chosen = pen.rng.randrange(6)
    for index, row in enumerate(frame.inset(1).grid(1, max(1, frame.height // pen.px(12)))):
        if index == chosen:
            pen.fill(row, mix(pal.panel, pal.accent, 0.5))
        pen.text(row.inset(pen.px(12), 0), pen.word("commands"), size=7.5)


def draw_notice(pen: Pen, box: Box) -> None:
    """A notice in a corner."""
    pal = pen.palette
    width, height = pen.px(pen.rng.randint(120, 170)), pen.px(pen.rng.randint(36, 56))
    top = box.bottom - height - pen.px(6) if pen.rng.random() < 0.6 else box.top + pen.px(6)
    frame = Box(box.right - width - pen.px(6), top, box.right - pen.px(6), top + height)
    pen.rounded(frame, pal.panel, radius=5, edge=pal.muted)
    mark, text = frame.inset(pen.px(7)).cut_left(pen.px(22))
    pen.rounded(mark.middle(pen.px(16), pen.px(16)), pal.accent)
    head, text = text.cut_top(pen.px(12))
    pen.text(head, pen.word("names"), size=8, bold=True)
    pen.prose(text, size=7, color=pal.muted)


def draw_chat(pen: Pen, box: Box) -> None:
    """A small chat at the right edge, over whatever is there."""
    pal = pen.palette
    width = pen.px(pen.rng.randint(110, 170))
    height = min(box.height, pen.px(pen.rng.randint(130, 230)))
    right = box.right - pen.px(pen.rng.randint(0, 40))
    top = box.bottom - height - pen.px(pen.rng.choice((0, 10, 40)))
    frame = Box(right - width, top, right, top + height)
    pen.frame(frame, pal.muted, pal.paper)
    head, body = frame.inset(1).cut_top(pen.px(15))
    pen.fill(head, pal.accent)
    pen.text(head.inset(pen.px(6), 0), pen.word("names"), size=8, bold=True)
    draw_bubbles(pen, body, 8)


def draw_little_film(pen: Pen, box: Box) -> None:
    """A picture-in-picture film in a lower corner."""
    width = pen.px(pen.rng.randint(90, 170))
    height = round(width * 9 / 16)
    left = box.right - width - pen.px(8) if pen.rng.random() < 0.7 else box.left + pen.px(8)
    frame = Box(left, box.bottom - height - pen.px(8), left + width, box.bottom - pen.px(8))
    pen.fill(frame.inset(-1), (0, 0, 0))
    pen.picture(frame, pen.rng.choice(("landscape", "portrait", "city")))


def draw_popups(pen: Pen, desk: Box, window: Box, clutter: float) -> None:
    """Draw none or some of them; ``clutter`` in [0, 1] is how likely each is."""
    chance = pen.rng.random
    shown = window.clip(desk)
    if chance() < 0.3 * clutter:
        draw_menu(pen, shown)
    if chance() < 0.4 * clutter:
        draw_dialog(pen, shown)
    if chance() < 0.3 * clutter:
        draw_notice(pen, desk)
    if chance() < 0.25 * clutter:
        draw_chat(pen, desk)
    if chance() < 0.15 * clutter:
        draw_little_film(pen, desk)


def draw_pointer(pen: Pen, desk: Box) -> None:
    """The mouse pointer anywhere on the desktop."""
    x = pen.rng.randint(desk.left, max(desk.left, desk.right - 1))
    y = pen.rng.randint(desk.top, max(desk.top, desk.bottom - 1))
    s = pen.px(10)
    arrow = [(x, y), (x, y + s), (x + s * 0.28, y + s * 0.75), (x + s * 0.7, y + s * 0.7)]
    pen.draw.polygon(arrow, fill=(15, 15, 15), outline=(245, 245, 245))
