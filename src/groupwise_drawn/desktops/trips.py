"""Painters of travel: booking forms, flights and trains, hotels, route maps."""

import itertools

from groupwise_drawn.desktops.chrome import draw_scroll_bar
from groupwise_drawn.desktops.geometry import Box
from groupwise_drawn.desktops.pen import Pen
from groupwise_drawn.desktops.theme import WHITE, Color, mix, tint

__all__ = ["paint_booking", "paint_flights", "paint_hotels", "paint_route"]


def draw_travel_head(pen: Pen, box: Box) -> Box:
    """Draw the site's bar and its tabs of services; returns the page below."""
    pal = pen.palette
    bar, rest = box.cut_top(pen.px(22))
    pen.fill(rest, pal.paper)
    color = pen.rng.choice((pal.accent, pal.paper, mix(pal.accent, (0, 0, 0), 0.5)))
    pen.fill(bar, color)
    ink: Color = WHITE if sum(color) < 420 else (30, 30, 30)
    pen.text(
        bar.inset(pen.px(10), 0),
        pen.rng.choice(("TripGo", "flyaway", "Voyager", "Railhub")),
        size=12,
        color=ink,
        bold=True,
    )
    for cell in bar.inset(pen.px(80), 0).grid(6, 1)[:5]:
        pen.text(
            cell,
            pen.rng.choice(("Flights", "Hotels", "Trains", "Cars", "Tours")),
            size=7.5,
            color=ink,
        )
    return rest


def draw_route_form(pen: Pen, box: Box) -> None:
    """Draw the fields from, to, dates and guests with a search button."""
    pal = pen.palette
    pen.rounded(box, pal.paper, edge=pal.edge)
    cells = box.inset(pen.px(6), pen.px(5)).grid(5, 1, pen.px(5))
    labels = ("From", "To", "Depart", "Guests")
    for cell, label in zip(cells[:4], labels, strict=True):
        pen.frame(cell, pal.muted, pal.paper)
        upper, lower = cell.inset(pen.px(4), 1).cut_top(cell.height * 0.4)
        pen.text(upper, label, size=6, color=pal.muted)
        value = pen.word("cities") if label in ("From", "To") else f"{pen.rng.randint(1, 28)} Dec"
        pen.text(lower, value, size=9, bold=True)
    pen.button(cells[4], "Search", color=pen.rng.choice(((250, 130, 30), pal.accent)))


def paint_booking(pen: Pen, box: Box) -> None:
    """A start page: large holiday picture, route form over it, perhaps a calendar, offers below."""
    box = draw_travel_head(pen, box)
    hero, offers = box.cut_top(box.height * pen.rng.uniform(0.45, 0.7))
    pen.picture(hero, pen.rng.choice(("sea", "landscape", "city")))
    pen.text(
        hero.cut_top(hero.height * 0.4)[0],
        "Where to next?",
        size=20,
        color=WHITE,
        align="center",
        bold=True,
    )
    form = hero.middle(hero.width * 0.86, pen.px(36))
    draw_route_form(pen, form)
    if pen.rng.random() < 0.4:
        draw_calendar(
            pen,
            Box(
                form.left + form.width // 3,
                form.bottom,
                form.right - pen.px(20),
                min(box.bottom, form.bottom + pen.px(110)),
            ),
        )
        return
    for cell in offers.inset(pen.px(12), pen.px(8)).grid(4, 1, pen.px(8)):
        draw_place(pen, cell)


def draw_place(pen: Pen, cell: Box) -> None:
    """Draw one offer: a picture of a place, its name and a price."""
    art, rest = cell.cut_top(cell.height * 0.62)
    pen.picture(art, pen.rng.choice(("sea", "landscape", "city")))
    pen.text(rest.cut_top(pen.px(12))[0], pen.word("cities"), size=8.5, bold=True)
    pen.text(
        rest.cut_bottom(pen.px(12))[0],
        f"from ${pen.rng.randint(29, 900)}",
        size=8,
        color=(200, 60, 30),
    )


def draw_calendar(pen: Pen, box: Box) -> None:
    """Draw two months of numbered days with a chosen span."""
    pen.frame(box, pen.palette.edge, pen.palette.paper)
    for month in box.inset(pen.px(6)).grid(2, 1, pen.px(10)):
        head, days = month.cut_top(pen.px(12))
        pen.text(
            head,
            pen.rng.choice(("May", "June", "July", "December")),
            size=8,
            align="center",
            bold=True,
        )
        start = pen.rng.randint(1, 25)
        for index, cell in enumerate(days.grid(7, 5)):
            if start <= index <= start + 5:
                pen.fill(cell, mix(pen.palette.paper, pen.palette.accent, 0.5))
            pen.text(cell, str(index + 1), size=6.5, align="center")


def paint_flights(pen: Pen, box: Box) -> None:
    """A list of connections: hours, a line with stops, price and button; filters beside it."""
    pal = pen.palette
    box = draw_travel_head(pen, box)
    pen.fill(box, mix(pal.panel, pal.paper, 0.4))
    form, box = box.cut_top(pen.px(38))
    draw_route_form(pen, form.inset(pen.px(10), pen.px(4)))
    if pen.rng.random() < 0.6:
        dates, box = box.cut_top(pen.px(24))
        for index, cell in enumerate(dates.inset(pen.px(10), pen.px(2)).grid(7, 1, 2)):
            pen.fill(cell, mix(pal.paper, pal.accent, 0.4 if index == 3 else 0.0))
            pen.text(cell, f"{index + 14} ${pen.rng.randint(50, 400)}", size=7, align="center")
    box = draw_scroll_bar(pen, box).inset(pen.px(10), pen.px(4))
    if pen.rng.random() < 0.6:
        side, box = box.cut_left(box.width * 0.2)
        for line in side.grid(1, 14):
            tick, label = line.cut_left(pen.px(10))
            pen.frame(tick.middle(pen.px(5), pen.px(5)), pal.muted)
            pen.text(label, pen.word("cities"), size=6.5)
    step = pen.px(pen.rng.choice((34, 42)))
    for row in range(max(1, box.height // step)):
        draw_trip(
            pen,
            Box(box.left, box.top + row * step, box.right, box.top + (row + 1) * step - pen.px(4)),
        )


def draw_trip(pen: Pen, box: Box) -> None:
    """Draw one connection as a card."""
    pal = pen.palette
    pen.rounded(box, pal.paper, edge=pal.edge)
    logo, rest = box.inset(pen.px(5), pen.px(3)).cut_left(pen.px(24))
    pen.disc(
        (logo.left + pen.px(9), (logo.top + logo.bottom) / 2),
        pen.px(6),
        tint(pen.rng.random(), 0.7, 0.8),
    )
    pay, rest = rest.cut_right(pen.px(60))
    start, way, end = rest.grid(3, 1)
    for cell in (start, end):
        upper, lower = cell.cut_top(cell.height * 0.6)
        pen.text(
            upper,
            f"{pen.rng.randint(0, 23)}:{pen.rng.randint(0, 11) * 5:02d}",
            size=11,
            align="center",
            bold=True,
        )
        pen.text(lower, pen.word("cities"), size=7, color=pal.muted, align="center")
    y = (way.top + way.bottom) // 2
    pen.rule((way.left, y), (way.right, y), pal.muted)
    pen.disc(((way.left + way.right) / 2, y), pen.px(1.8), pal.accent)
    upper, lower = pay.cut_top(pay.height * 0.5)
    pen.text(
        upper,
        f"${pen.rng.randint(30, 990)}",
        size=11,
        color=(215, 80, 30),
        align="center",
        bold=True,
    )
    pen.button(lower.inset(pen.px(6), 0), "Book", color=(250, 140, 30))


def draw_map(pen: Pen, box: Box, num_pins: int) -> list[tuple[int, int]]:
    """Draw a street map with water, parks and pins; returns where the pins stand."""
    rng, dark = pen.rng, pen.palette.dark
    land: Color = (45, 48, 56) if dark else tint(rng.uniform(0.08, 0.2), 0.06, 0.94)
    street = mix(land, WHITE, 0.2 if dark else 0.8)
    sheet = box.inset(0)
    pen.fill(sheet, land)
    for hue in (0.33, 0.3, 0.56):
        x, y = rng.randint(box.left, box.right), rng.randint(box.top, box.bottom)
        far = [
            (
                x + rng.randint(-box.width // 3, box.width // 3),
                y + rng.randint(-box.height // 3, box.height // 3),
            )
            for _ in range(5)
        ]
        inside = [
            (min(box.right - 1, max(box.left, a)), min(box.bottom - 1, max(box.top, b)))
            for a, b in far
        ]
        pen.draw.polygon(inside, fill=tint(hue, 0.3, 0.35 if dark else 0.85))
    for index in range(18):
        width = pen.px(3 if index < 4 else 1.2)
        color = tint(0.12, 0.45, 0.6 if dark else 0.98) if index < 3 else street
        a, b = rng.uniform(0, 1), rng.uniform(0, 1)
        if index % 2:
            ends = (
                box.left,
                box.top + round(a * box.height),
                box.right - 1,
                box.top + round(b * box.height),
            )
        else:
            ends = (
                box.left + round(a * box.width),
                box.top,
                box.left + round(b * box.width),
                box.bottom - 1,
            )
        pen.draw.line(ends, fill=color, width=width)
    pins = [
        (
            rng.randint(box.left, max(box.left, box.right - 1)),
            rng.randint(box.top, max(box.top, box.bottom - 1)),
        )
        for _ in range(num_pins)
    ]
    for pin in pins:
        pen.disc(pin, pen.px(3.5), (215, 50, 40))
        pen.disc(pin, pen.px(1.3), WHITE)
    return pins


def paint_hotels(pen: Pen, box: Box) -> None:
    """Hotels as rows with pictures, with or without a map at the right."""
    pal = pen.palette
    box = draw_travel_head(pen, box)
    if pen.rng.random() < 0.6:
        chart, box = box.cut_right(box.width * pen.rng.uniform(0.35, 0.5))
        draw_map(pen, chart, 9)
    head, box = box.cut_top(pen.px(22))
    pen.text(
        head.inset(pen.px(8), 0),
        f"{pen.word('cities')}: {pen.rng.randint(20, 900)} stays",
        size=10,
        bold=True,
    )
    for row in box.inset(pen.px(8), 0).grid(1, pen.rng.randint(3, 5), pen.px(5)):
        pen.rounded(row, pal.paper, edge=pal.edge)
        art, text = row.inset(1).cut_left(row.width * 0.34)
        pen.picture(art, pen.rng.choice(("room", "room", "sea", "city")))
        name, text = text.inset(pen.px(6), pen.px(3)).cut_top(pen.px(13))
        pen.text(name, f"Hotel {pen.word('cities')}", size=9.5, color=(30, 80, 190), bold=True)
        cost, text = text.cut_bottom(pen.px(13))
        pen.prose(text, size=6.5)
        pen.fill(cost.cut_left(pen.px(14))[0].inset(0, 1), (20, 70, 160))
        pen.text(cost, f"${pen.rng.randint(30, 400)} per night", size=8.5, align="right", bold=True)


def paint_route(pen: Pen, box: Box) -> None:
    """A map over the whole page with a route and a panel of directions."""
    pal = pen.palette
    pins = draw_map(pen, box, 5)
    for start, end in itertools.pairwise(pins):
        pen.draw.line((start, (end[0], start[1]), end), fill=(60, 120, 240), width=pen.px(3))
    panel = box.cut_left(box.width * pen.rng.uniform(0.24, 0.36))[0]
    if pen.rng.random() < 0.4:
        panel = panel.inset(pen.px(8)).cut_top(panel.height * 0.7)[0]
    pen.rounded(panel, pal.paper, edge=pal.edge)
    head, body = panel.inset(pen.px(6)).cut_top(pen.px(44))
    pen.fill(head, pal.accent)
    for field in head.inset(pen.px(5)).grid(1, 2, pen.px(4)):
        pen.fill(field, WHITE)
        pen.text(field.inset(pen.px(4), 0), pen.word("cities"), size=8, color=(30, 30, 30))
    for row in body.grid(1, pen.rng.randint(5, 9)):
        mark, line = row.cut_left(pen.px(14))
        pen.icon(mark.middle(pen.px(7), pen.px(7)))
        upper, lower = line.cut_top(line.height * 0.5)
        pen.text(upper, f"{pen.rng.randint(1, 90)} min  {pen.word('cities')}", size=8)
        pen.prose_line(lower, size=6.5, color=pal.muted)
