"""Painters of social life: feeds, chats, photo walls, forums."""

from groupwise_drawn.desktops.chrome import draw_scroll_bar
from groupwise_drawn.desktops.geometry import Box
from groupwise_drawn.desktops.pen import Pen
from groupwise_drawn.desktops.theme import WHITE, Color, mix, tint

__all__ = ["draw_bubbles", "paint_chat", "paint_feed", "paint_forum", "paint_photo_wall"]


def draw_face(pen: Pen, box: Box) -> None:
    """Draw a round or square profile picture at the box's left, as high as the box."""
    side = min(box.width, box.height)
    slot = Box(box.left, box.top, box.left + side, box.top + side)
    if pen.rng.random() < 0.5:
        pen.picture(slot, "portrait")
        return
    color = tint(pen.rng.random(), 0.5, 0.8)
    pen.disc(((slot.left + slot.right) / 2, (slot.top + slot.bottom) / 2), side / 2, color)
    pen.text(slot, pen.word("names")[:1], size=8, color=WHITE, align="center", bold=True)


def draw_bubbles(pen: Pen, box: Box, num_bubbles: int) -> None:
    """Draw a talk as bubbles from the left and the right."""
    pal, mine = pen.palette, pen.palette.accent
    theirs = mix(pal.panel, pal.edge, 0.4)
    y = box.top + pen.px(4)
    for _ in range(num_bubbles):
        height = pen.px(pen.rng.choice((14, 14, 24)))
        if y + height > box.bottom:
            return
        own, width = pen.rng.random() < 0.5, round(box.width * pen.rng.uniform(0.25, 0.6))
        left = box.right - width - pen.px(6) if own else box.left + pen.px(20)
        bubble = Box(left, y, left + width, y + height)
        if not own:
            draw_face(pen, Box(box.left + pen.px(5), y, box.left + pen.px(17), y + pen.px(12)))
        pen.rounded(bubble, mine if own else theirs, radius=5)
        ink: Color = WHITE if own and sum(mine) < 460 else (25, 25, 25) if own else pal.ink
        for line in bubble.inset(pen.px(5), 1).grid(1, 2 if height > pen.px(20) else 1):
            pen.text(line, pen.word("chat"), size=7.5, color=ink)
        y += height + pen.px(6)


def paint_chat(pen: Pen, box: Box) -> None:
    """A messenger: people at the left, bubbles, a line to write in."""
    pal = pen.palette
    if pen.rng.random() < 0.5:
        rail, box = box.cut_left(pen.px(22))
        pen.fill(rail, mix(pal.accent, (20, 20, 30), 0.7))
        for cell in rail.inset(pen.px(5), pen.px(6)).grid(1, 12)[:6]:
            draw_face(pen, cell.middle(pen.px(11), pen.px(11)))
    side, box = box.cut_left(box.width * pen.rng.uniform(0.22, 0.35))
    pen.fill(side, pal.panel)
    for index, cell in enumerate(side.inset(pen.px(4)).grid(1, pen.rng.randint(8, 13), 1)):
        if index == 1:
            pen.fill(cell, mix(pal.panel, pal.accent, 0.35))
        side_face, text = cell.inset(pen.px(2)).cut_left(cell.height)
        draw_face(pen, side_face)
        upper, lower = text.cut_top(text.height * 0.5)
        pen.text(upper, pen.word("names"), size=8, bold=True)
        pen.text(lower, pen.word("chat"), size=6.5, color=pal.muted)
    head, body = box.cut_top(pen.px(18))
    pen.fill(head, pal.panel)
    pen.text(head.inset(pen.px(8), 0), pen.word("names"), size=9, bold=True)
    entry, body = body.cut_bottom(pen.px(22))
    pen.fill(body, mix(pal.paper, pal.accent, pen.rng.choice((0.0, 0.08, 0.2))))
    pen.fill(entry, pal.panel)
    pen.rounded(entry.inset(pen.px(14), pen.px(4)), pal.paper, radius=8, edge=pal.edge)
    draw_bubbles(pen, body, pen.many(2, 20))


def paint_feed(pen: Pen, box: Box) -> None:
    """A feed in three columns: places, posts with photos, suggestions."""
    pal = pen.palette
    head, box = box.cut_top(pen.px(18))
    pen.fill(head, pen.rng.choice((pal.accent, pal.paper)))
    pen.fill(box, mix(pal.panel, pal.paper, pen.rng.choice((0.2, 0.9))))
    left, rest = box.cut_left(box.width * 0.2)
    right, middle = rest.cut_right(rest.width * 0.27)
    for cell in left.inset(pen.px(8)).grid(1, 12, pen.px(3))[: pen.rng.randint(6, 11)]:
        mark, label = cell.cut_left(pen.px(15))
        draw_face(pen, mark.middle(pen.px(10), pen.px(10)))
        pen.text(label, pen.word("tabs"), size=8)
    for cell in right.inset(pen.px(8)).grid(1, 9, pen.px(4))[: pen.rng.randint(4, 9)]:
        face, label = cell.cut_left(pen.px(22))
        draw_face(pen, face.inset(pen.px(2)))
        pen.text(label, pen.word("names"), size=8, bold=True)
    column = middle.inset(pen.px(10), 0)
    top = column.top - pen.rng.randint(0, pen.px(60))
    while top < column.bottom:
        height = pen.px(pen.rng.randint(90, 200))
        draw_post(pen, Box(column.left, top, column.right, top + height))
        top += height + pen.px(8)


def draw_post(pen: Pen, box: Box) -> None:
    """Draw one post: a face and a name, some words, perhaps a photo, three small symbols."""
    pal = pen.palette
    pen.rounded(box, pal.paper, edge=pal.edge)
    who, rest = box.inset(pen.px(6), pen.px(5)).cut_top(pen.px(16))
    draw_face(pen, who)
    pen.text(who.inset(pen.px(20), 0), pen.word("names"), size=8.5, bold=True)
    actions, rest = rest.cut_bottom(pen.px(11))
    y = pen.prose(rest, size=8, num_lines=pen.rng.randint(1, 3))
    photo = Box(rest.left, y, rest.right, rest.bottom)
    if photo.height > pen.px(25):
        pen.picture(photo, pen.rng.choice(("portrait", "food", "landscape", "sea", "city")))
    for cell in actions.grid(4, 1)[:3]:
        pen.icon(cell.cut_left(pen.px(7))[0].middle(pen.px(7), pen.px(7)), pal.muted)
        pen.text(cell.inset(pen.px(10), 0), str(pen.rng.randint(0, 999)), size=7, color=pal.muted)


def paint_photo_wall(pen: Pen, box: Box) -> None:
    """A person's page: large cover, face, counters and a wall of square photos."""
    pal = pen.palette
    pen.fill(box, pal.paper)
    cover, rest = draw_scroll_bar(pen, box).cut_top(box.height * pen.rng.choice((0.0, 0.22)))
    pen.picture(cover, "landscape")
    body = rest.middle(rest.width * pen.rng.uniform(0.65, 0.95), rest.height)
    who, wall = body.cut_top(pen.px(58))
    draw_face(pen, who.inset(pen.px(6)))
    name = who.inset(pen.px(66), pen.px(6)).cut_top(pen.px(20))[0]
    pen.text(name, pen.word("names"), size=14, bold=True)
    counters = Box(name.left, name.bottom, body.right, who.bottom)
    pen.text(
        counters, f"{pen.rng.randint(3, 900)} posts   {pen.rng.randint(9, 9000)} followers", size=8
    )
    pen.button(name.cut_right(pen.px(54))[0].inset(pen.px(3)), "Follow")
    columns = pen.rng.randint(3, 4)
    for cell in wall.grid(columns, pen.rng.randint(2, 4), pen.px(4)):
        pen.picture(cell, pen.rng.choice(("portrait", "food", "sea", "landscape", "room")))


def paint_forum(pen: Pen, box: Box) -> None:
    """Questions and answers: a title, votes at the left, nested replies with faces."""
    pal = pen.palette
    head, box = box.cut_top(pen.px(20))
    pen.fill(head, pal.panel)
    pen.text(
        head.inset(pen.px(8), 0),
        pen.rng.choice(("AskAll", "threadly", "Knowit")),
        size=11,
        color=pal.accent,
        bold=True,
    )
    pen.fill(box, mix(pal.paper, pal.panel, 0.5))
    side, box = draw_scroll_bar(pen, box).inset(pen.px(8), pen.px(6)).cut_right(box.width * 0.24)
    for cell in side.inset(pen.px(8), 0).grid(1, 4, pen.px(6))[: pen.rng.randint(1, 4)]:
        pen.rounded(cell, pal.paper, edge=pal.edge)
        pen.prose(cell.inset(pen.px(5)), size=6.5)
    title, box = box.cut_top(pen.px(24))
    pen.text(title, pen.word("queries").capitalize() + "?", size=14, bold=True)
    while box.height > pen.px(30):
        reply, box = box.cut_top(pen.px(pen.rng.randint(40, 80)))
        reply = Box(
            reply.left + pen.px(pen.rng.choice((0, 0, 16, 32))),
            reply.top,
            reply.right,
            reply.bottom - pen.px(4),
        )
        pen.fill(reply, pal.paper)
        votes, text = reply.inset(pen.px(4)).cut_left(pen.px(22))
        pen.text(
            votes.cut_top(pen.px(14))[0],
            str(pen.rng.randint(0, 900)),
            size=8,
            color=pal.accent,
            align="center",
        )
        who, text = text.cut_top(pen.px(13))
        draw_face(pen, who.cut_left(pen.px(11))[0])
        pen.text(who.inset(pen.px(15), 0), pen.word("names"), size=8, bold=True)
        pen.prose(text, size=7.5)
