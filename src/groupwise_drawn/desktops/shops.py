"""Painters of shopping: product grids, product pages, carts, reviews."""

from groupwise_drawn.desktops.chrome import draw_scroll_bar
from groupwise_drawn.desktops.geometry import Box
from groupwise_drawn.desktops.pen import Pen
from groupwise_drawn.desktops.theme import WHITE, Color, mix, tint

__all__ = ["paint_cart", "paint_product", "paint_product_grid", "paint_reviews"]

STAR: Color = (240, 165, 30)


def draw_shop_head(pen: Pen, box: Box) -> Box:
    """Draw the shop's bar with its name, search field and cart; returns the page below."""
    pal, rng = pen.palette, pen.rng
    bar, rest = box.cut_top(pen.px(26))
    color = rng.choice((pal.accent, tint(rng.random(), 0.5, 0.25), pal.paper))
    pen.fill(rest, pal.paper)
    pen.fill(bar, color)
    ink: Color = WHITE if sum(color) < 420 else (30, 30, 30)
    pen.text(
        bar.inset(pen.px(8), 0),
        rng.choice(("shopify", "Marketo", "bazaar", "eMart", "Taomall")),
        size=13,
        color=ink,
        bold=True,
    )
    field = bar.inset(pen.px(90), pen.px(6))
    pen.rounded(field, WHITE, radius=2, edge=(150, 150, 150))
    pen.text(field.inset(pen.px(6), 0), pen.word("products"), size=7.5, color=(40, 40, 40))
    pen.fill(field.cut_right(pen.px(18))[0], STAR)
    pen.text(bar.cut_right(pen.px(60))[0], f"Cart ({rng.randint(0, 9)})", size=8, color=ink)
    if rng.random() < 0.6:
        links, rest = rest.cut_top(pen.px(12))
        pen.fill(links, mix(color, (0, 0, 0), 0.25))
        for cell in links.inset(pen.px(8), 0).grid(8, 1)[: rng.randint(4, 8)]:
            pen.text(
                cell, pen.word("tabs"), size=7, color=WHITE if sum(color) < 560 else (20, 20, 20)
            )
    return rest


def draw_stars(pen: Pen, box: Box) -> None:
    """Draw five rating marks, some of them grey."""
    good = pen.rng.randint(2, 5)
    for index in range(5):
        center = (box.left + pen.px(4 + 7 * index), (box.top + box.bottom) / 2)
        pen.disc(center, pen.px(2.4), STAR if index < good else pen.palette.edge)


def price(pen: Pen) -> str:
    """A price in one of several currencies."""
    return f"{pen.rng.choice('$$E')}{pen.rng.randint(3, 900)}.{pen.rng.randint(0, 99):02d}"


def draw_card(pen: Pen, box: Box) -> None:
    """Draw one product: picture on white, name, stars and price."""
    if pen.rng.random() < 0.6:
        pen.frame(box, pen.palette.edge, pen.palette.paper)
    art, rest = box.inset(pen.px(3)).cut_top(box.height * 0.58)
    pen.picture(art, "object")
    name, rest = rest.cut_top(pen.px(10))
    stars, rest = rest.cut_top(pen.px(8))
    pen.text(name, pen.word("products"), size=7)
    draw_stars(pen, stars)
    pen.text(rest.cut_top(pen.px(12))[0], price(pen), size=9, color=(190, 40, 30), bold=True)


def paint_product_grid(pen: Pen, box: Box) -> None:
    """Search results of a shop: filters at the left and a grid of products."""
    pal = pen.palette
    box = draw_scroll_bar(pen, draw_shop_head(pen, box))
    if pen.rng.random() < 0.3:
        banner, box = box.cut_top(box.height * 0.25)
        pen.fill(banner, tint(pen.rng.random(), 0.6, 0.9))
        pen.text(banner, "SALE  -50%", size=24, color=WHITE, align="center", bold=True)
    if pen.rng.random() < 0.65:
        side, box = box.cut_left(box.width * pen.rng.uniform(0.16, 0.24))
        for line in side.inset(pen.px(8)).grid(1, pen.rng.randint(12, 20)):
            tick, label = line.cut_left(pen.px(10))
            pen.frame(tick.middle(pen.px(5), pen.px(5)), pal.muted)
            pen.text(label, pen.word("products"), size=6.5)
    columns = pen.rng.randint(3, 5)
    for cell in box.inset(pen.px(6)).grid(columns, pen.rng.randint(2, 3), pen.px(6)):
        draw_card(pen, cell)


def paint_product(pen: Pen, box: Box) -> None:
    """One product: large picture with small ones beside it, facts, price and buy buttons."""
    pal = pen.palette
    box = draw_scroll_bar(pen, draw_shop_head(pen, box)).inset(pen.px(10), pen.px(8))
    thumbs, box = box.cut_left(pen.px(26))
    for cell in thumbs.grid(1, 7, pen.px(4))[: pen.rng.randint(3, 7)]:
        pen.picture(cell.inset(1), "object")
    art, rest = box.cut_left(box.width * pen.rng.uniform(0.36, 0.5))
    big = art.inset(pen.px(6)).cut_top(art.height * pen.rng.uniform(0.6, 0.95))[0]
    pen.picture(big, "object")
    buy, facts = rest.cut_right(rest.width * 0.33)
    title, facts = facts.inset(pen.px(6), 0).cut_top(pen.px(34))
    for line in title.grid(1, 2):
        pen.prose_line(line, size=11, color=pal.ink, kind="products")
    stars, facts = facts.cut_top(pen.px(12))
    draw_stars(pen, stars)
    cost, facts = facts.cut_top(pen.px(22))
    pen.text(cost, price(pen), size=16, color=(180, 40, 30))
    pen.prose(facts, size=7)
    panel = buy.cut_top(min(buy.height, pen.px(150)))[0]
    pen.rounded(panel, pal.paper, edge=pal.edge)
    rows = panel.inset(pen.px(6), pen.px(6)).grid(1, 7, pen.px(3))
    pen.text(rows[0], price(pen), size=12, bold=True)
    pen.text(rows[2], "In stock", size=9, color=(20, 130, 50))
    pen.button(rows[4], "Add to cart", color=(250, 205, 40))
    pen.button(rows[5], "Buy now", color=(245, 150, 40))


def paint_cart(pen: Pen, box: Box) -> None:
    """A shopping cart: rows of products with amounts and a sum at the right."""
    pal = pen.palette
    box = draw_shop_head(pen, box)
    pen.fill(box, mix(pal.panel, pal.paper, 0.4))
    total, rows = box.inset(pen.px(10)).cut_right(box.width * 0.28)
    total = total.inset(pen.px(6), 0).cut_top(pen.px(110))[0]
    pen.rounded(total, pal.paper, edge=pal.edge)
    lines = total.inset(pen.px(8), pen.px(6)).grid(1, 5, 2)
    for line, label in zip(lines[:4], ("Subtotal", "Shipping", "Tax", "Total"), strict=True):
        pen.text(line, label, size=8)
        pen.text(line, price(pen), size=8, align="right")
    pen.button(lines[4], "Checkout", color=(245, 160, 40))
    pen.fill(rows, pal.paper)
    for cell in rows.inset(pen.px(8), pen.px(4)).grid(1, pen.rng.randint(3, 6), 2)[
        : pen.many(1, 6)
    ]:
        pen.rule((cell.left, cell.bottom), (cell.right, cell.bottom), pal.edge)
        art, text = cell.inset(0, pen.px(3)).cut_left(cell.height)
        pen.picture(art, "object")
        upper, lower = text.inset(pen.px(8), 0).cut_top(text.height / 2)
        pen.text(upper, pen.word("products"), size=9)
        pen.text(upper, price(pen), size=9, align="right", bold=True)
        pen.frame(lower.cut_left(pen.px(40))[0].middle(pen.px(38), pen.px(12)), pal.muted)
        pen.text(lower.inset(pen.px(14), 0), str(pen.rng.randint(1, 5)), size=8)
        pen.text(lower.inset(pen.px(50), 0), "Delete   Save for later", size=7, color=(30, 90, 180))


def paint_reviews(pen: Pen, box: Box) -> None:
    """Customer reviews: rating bars at the left, texts and photos at the right."""
    pal = pen.palette
    box = draw_scroll_bar(pen, draw_shop_head(pen, box)).inset(pen.px(12), pen.px(8))
    side, body = box.cut_left(box.width * 0.32)
    head, side = side.cut_top(pen.px(20))
    pen.text(head, "Customer reviews", size=12, bold=True)
    for row in side.cut_top(pen.px(90))[0].grid(1, 5, pen.px(5)):
        bar = row.inset(pen.px(24), pen.px(2))
        pen.text(row, f"{pen.rng.randint(1, 5)} star", size=7, color=(30, 110, 150))
        pen.frame(bar, pal.edge, pal.panel)
        pen.fill(bar.cut_left(bar.width * pen.rng.random())[0], STAR)
    photos, body = body.inset(pen.px(12), 0).cut_top(pen.px(62))
    for cell in photos.grid(5, 1, pen.px(4))[: pen.rng.randint(2, 5)]:
        pen.picture(cell, pen.rng.choice(("object", "room")))
    for review in body.inset(0, pen.px(4)).grid(1, 4, pen.px(6)):
        who, rest = review.cut_top(pen.px(12))
        pen.disc((who.left + pen.px(5), (who.top + who.bottom) / 2), pen.px(4), pal.edge)
        pen.text(who.inset(pen.px(14), 0), pen.word("names"), size=7.5)
        stars, rest = rest.cut_top(pen.px(9))
        draw_stars(pen, stars)
        pen.prose(rest, size=7)
