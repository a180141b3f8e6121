"""Painters of games: cards, boards, puzzles, side-scrollers, three-dimensional views."""

import math

from groupwise_drawn.desktops.chrome import draw_menu_bar, draw_status_bar, draw_tool_bar
from groupwise_drawn.desktops.geometry import Box
from groupwise_drawn.desktops.pen import Pen
from groupwise_drawn.desktops.theme import WHITE, Color, mix, tint

__all__ = ["paint_board", "paint_cards", "paint_first_person", "paint_platformer", "paint_puzzle"]


def draw_card_face(pen: Pen, box: Box) -> None:
    """Draw the front of a playing card with its signs."""
    pen.rounded(box, WHITE, radius=2, edge=(60, 60, 60))
    color: Color = pen.rng.choice(((200, 20, 20), (10, 10, 10)))
    rank = pen.rng.choice(("A", "2", "5", "8", "10", "J", "Q", "K"))
    pen.text(box.inset(pen.px(2)).cut_top(pen.px(10))[0], rank, size=9, color=color, bold=True)
    r = max(1, box.width // 10)
    for cell in box.inset(box.width // 5, box.height // 5).grid(2, pen.rng.randint(1, 4)):
        x, y = (cell.left + cell.right) / 2, (cell.top + cell.bottom) / 2
        pen.draw.polygon([(x - r, y), (x, y - r), (x + r, y), (x, y + r)], fill=color)


def paint_cards(pen: Pen, box: Box) -> None:
    """Solitaire: piles of cards, open and closed, on a plain table."""
    if pen.rng.random() < 0.7:
        box = draw_status_bar(pen, draw_tool_bar(pen, draw_menu_bar(pen, box, num_menus=5)))
    hue = pen.rng.choice((0.36, 0.36, 0.55, 0.62, 0.02))
    table, back = tint(hue, 0.8, pen.rng.uniform(0.25, 0.5)), tint(pen.rng.random(), 0.6, 0.7)
    pen.fill(box, table)
    columns = pen.rng.randint(6, 9)
    upper, lower = box.inset(pen.px(10)).cut_top(box.height * 0.27)
    for index, cell in enumerate(upper.grid(columns, 1, pen.px(8))):
        card = cell.cut_top(cell.width * 1.35)[0]
        if index in (2, 3) or pen.rng.random() < 0.4:
            pen.rounded(card, mix(table, WHITE, 0.15), radius=2)
        elif index == 0:
            pen.rounded(card, back, radius=2, edge=WHITE)
        else:
            draw_card_face(pen, card)
    for index, cell in enumerate(lower.grid(columns, 1, pen.px(8))):
        height, top = round(cell.width * 1.35), cell.top
        for _ in range(min(index, pen.rng.randint(0, 6))):
            pen.rounded(Box(cell.left, top, cell.right, top + height), back, radius=2, edge=WHITE)
            top += pen.px(5)
        for _ in range(pen.rng.randint(1, 4)):
            draw_card_face(pen, Box(cell.left, top, cell.right, top + height))
            top += pen.px(12)


def paint_board(pen: Pen, box: Box) -> None:
    """A board game: chess, draughts or go, with moves at the side."""
    pal = pen.palette
    pen.fill(box, mix(pal.panel, pal.edge, pen.rng.random()))
    side, body = box.cut_right(box.width * pen.rng.choice((0.0, 0.25)))
    pen.fill(side, pal.paper)
    for index, line in enumerate(side.inset(pen.px(6)).grid(2, 18)[: pen.rng.randint(6, 36)]):
        square = f"{pen.rng.choice('abcdefgh')}{pen.rng.randint(1, 8)}"
        pen.text(line, f"{index // 2 + 1}. {pen.rng.choice('NBRQK')}{square}", size=7)
    edge = min(body.width, body.height) * 0.94
    board = body.middle(edge, edge)
    hue = pen.rng.choice((0.08, 0.3, 0.6))
    light, dark = tint(hue, 0.2, 0.93), tint(hue, 0.5, 0.55)
    num = pen.rng.choice((8, 8, 9, 15))
    for index, cell in enumerate(board.grid(num, num)):
        if num == 8:
            pen.fill(cell, dark if (index // num + index) % 2 else light)
        else:
            pen.frame(cell, mix(dark, (0, 0, 0), 0.4), light)
        if pen.rng.random() < 0.3:
            color: Color = pen.rng.choice(((245, 245, 240), (25, 25, 25)))
            center = ((cell.left + cell.right) / 2, (cell.top + cell.bottom) / 2)
            pen.disc(center, cell.width * 0.36, (90, 90, 90))
            pen.disc(center, cell.width * 0.33, color)


def paint_puzzle(pen: Pen, box: Box) -> None:
    """A puzzle of coloured cells: falling blocks, number tiles, mines or sudoku."""
    pal, kind = pen.palette, pen.rng.randrange(3)
    back = pen.rng.choice((pal.paper, (18, 18, 30), tint(pen.rng.random(), 0.25, 0.9)))
    pen.fill(box, back)
    columns, rows = ((10, 16), (4, 4), (9, 9))[kind]
    height = min(box.height * 0.92, box.width * 0.9 * rows / columns)
    board = box.middle(height * columns / rows, height)
    pen.fill(board.inset(-pen.px(3)), mix(back, (90, 90, 90), 0.5))
    hue = pen.rng.random()
    for index, cell in enumerate(board.grid(columns, rows, pen.px(1) if kind != 1 else pen.px(5))):
        row = index // columns
        if kind == 0:
            full = pen.rng.random() < (0.8 if row > 10 else 0.05)
            pen.fill(
                cell,
                tint(pen.rng.randrange(7) / 7, 0.8, 0.9)
                if full
                else mix(back, (128, 128, 128), 0.2),
            )
        elif kind == 1:
            power = pen.rng.choice((0, 0, 1, 2, 3, 5, 7))
            pen.rounded(cell, tint(hue, 0.08 + power * 0.1, 0.92))
            pen.text(
                cell,
                str(2**power) if power else "",
                size=16,
                color=(60, 50, 50),
                align="center",
                bold=True,
            )
        else:
            pen.fill(cell, WHITE if (row // 3 + index % 9 // 3) % 2 else (226, 232, 240))
            if pen.rng.random() < 0.5:
                pen.text(
                    cell, str(pen.rng.randint(1, 9)), size=12, color=(30, 40, 90), align="center"
                )
    score = box.cut_left(pen.px(80))[0].inset(pen.px(8)).cut_top(pen.px(20))[0]
    pen.text(
        score,
        f"Score {pen.rng.randint(0, 9999)}",
        size=10,
        color=WHITE if sum(back) < 380 else (30, 30, 30),
        bold=True,
    )


def paint_platformer(pen: Pen, box: Box) -> None:
    """A side-scroller: sky, blocks, coins, figures, a score line."""
    rng = pen.rng
    sky = tint(
        rng.choice((0.55, 0.6, 0.75, 0.05)), rng.uniform(0.3, 0.7), rng.choice((0.95, 0.8, 0.25))
    )
    pen.fill(box, sky)
    for _ in range(4):
        x, y = rng.randint(box.left, box.right), box.top + round(box.height * rng.uniform(0.1, 0.4))
        for step in (-1, 0, 1):
            pen.disc((x + step * pen.px(10), y), pen.px(9 - 2 * abs(step)), mix(sky, WHITE, 0.6))
    side = max(4, pen.px(20))
    earth, grass = tint(0.07, 0.6, rng.uniform(0.3, 0.6)), tint(rng.uniform(0.2, 0.4), 0.7, 0.7)
    ground = box.bottom - side * 2
    for column in range(box.width // side + 1):
        x = box.left + column * side
        top = ground - side * rng.choice((0, 0, 0, 0, 1, 2))
        if rng.random() < 0.08:
            continue
        pen.fill(Box(x, top, min(box.right, x + side), box.bottom), earth)
        pen.fill(Box(x, top, min(box.right, x + side), top + side // 4), grass)
        if rng.random() < 0.25:
            block = Box(x, top - side * 3, x + side, top - side * 2)
            pen.frame(block, (80, 50, 20), (200, 130, 60))
            pen.disc((x + side / 2, top - side * 3.6), side * 0.3, (250, 210, 50))
        if rng.random() < 0.15:
            pen.fill(
                Box(x + side // 4, top - side, x + side * 3 // 4, top), tint(rng.random(), 0.8, 0.8)
            )
    pen.text(
        box.inset(pen.px(8)).cut_top(pen.px(16))[0],
        f"SCORE {rng.randint(0, 99999):05d}   x{rng.randint(0, 9)}",
        size=11,
        color=WHITE,
        bold=True,
    )


def paint_first_person(pen: Pen, box: Box) -> None:
    """A three-dimensional view: horizon, walls in perspective, cross hair, map and bars."""
    rng = pen.rng
    pen.picture(box, rng.choice(("landscape", "city", "landscape")))
    ground = box.cut_bottom(box.height * rng.uniform(0.3, 0.45))[0]
    color = tint(rng.choice((0.08, 0.3, 0.6)), rng.uniform(0.1, 0.5), rng.uniform(0.2, 0.5))
    pen.fill(ground, color)
    middle = (ground.left + ground.width / 2, ground.top)
    for step in range(-6, 7):
        pen.rule(
            middle,
            (middle[0] + step * ground.width / 6, ground.bottom - 1),
            mix(color, WHITE, 0.15),
        )
    for side in (box.left, box.right):
        depth = (middle[0] - side) * rng.uniform(0.3, 0.6)
        wall = [
            (side, box.top),
            (side + depth, box.top + box.height * 0.25),
            (side + depth, ground.top + 4),
            (side, box.bottom),
        ]
        pen.draw.polygon(wall, fill=mix(color, (0, 0, 0), 0.4))
    low = box.inset(pen.px(10))
    for index, share in enumerate((rng.random(), rng.random())):
        bar = Box(
            low.left,
            low.bottom - pen.px(9 * index + 7),
            low.left + pen.px(90),
            low.bottom - pen.px(9 * index),
        )
        pen.frame(bar, WHITE, (30, 30, 30))
        pen.fill(
            bar.inset(1).cut_left(bar.width * share)[0], ((210, 50, 50), (60, 130, 230))[index]
        )
    chart = (low.right - pen.px(28), low.top + pen.px(28))
    pen.disc(chart, pen.px(27), (25, 30, 30))
    for _ in range(5):
        angle, far = rng.uniform(0, 6.28), pen.px(rng.uniform(2, 22))
        pen.disc(
            (chart[0] + far * math.cos(angle), chart[1] + far * math.sin(angle)),
            pen.px(2),
            (90, 230, 120),
        )
    x, y = box.left + box.width // 2, box.top + box.height // 2
    pen.rule((x - pen.px(6), y), (x + pen.px(6), y), WHITE)
    pen.rule((x, y - pen.px(6)), (x, y + pen.px(6)), WHITE)
