"""Painters of programming: editors with file trees, notebooks, code review, interpreters."""

from groupwise_drawn.desktops.chrome import (
    draw_menu_bar,
    draw_scroll_bar,
    draw_status_bar,
    draw_tool_bar,
)
from groupwise_drawn.desktops.geometry import Box
from groupwise_drawn.desktops.pen import Pen
from groupwise_drawn.desktops.sheets import draw_chart
from groupwise_drawn.desktops.theme import Color, mix, tint
from groupwise_drawn.desktops.words import screen_words

__all__ = ["paint_ide", "paint_light_editor", "paint_notebook", "paint_review", "paint_split_code"]


def pick_syntax(pen: Pen) -> list[Color]:
    """Token colours that stand out from the paper: dim on light, pale on dark."""
    hue, value = pen.rng.random(), 0.9 if pen.palette.dark else 0.55
    saturation = 0.45 if pen.palette.dark else 0.85
    colors = [tint(hue + step / 4, saturation, value) for step in range(4)]
    return [*colors, pen.palette.ink, pen.palette.ink, pen.palette.muted]


def draw_code(pen: Pen, box: Box, *, size: float = 7.5, numbers: bool = True) -> None:
    """Draw indented lines of code in several colours, with line numbers."""
    pal, rng = pen.palette, pen.rng
    pen.fill(box, pal.paper)
    step, syntax = max(4, pen.px(size * 1.45)), pick_syntax(pen)
    num_lines = box.height // step
    num_lines = min(num_lines, max(1, round(num_lines * min(1.0, pen.fullness * 1.4))))
    indent, first, lines = 0, rng.randint(1, 300) if pen.fullness > 0.6 else 1, screen_words("code")
    for row in range(num_lines):
        top = box.top + row * step
        if numbers:
            slot = Box(box.left, top, box.left + pen.px(18), top + step)
            pen.text(slot, str(first + row), size=size - 1.5, color=pal.muted, align="right")
        indent = max(0, min(6, indent + rng.choice((-2, -1, 0, 0, 1, 1))))
        if rng.random() < 0.12:
            continue
        x = box.left + pen.px(24 if numbers else 5) + indent * pen.px(9)
        head, _, tail = rng.choice(lines).partition(" ")
        slot = Box(x, top, box.right, top + step)
        x += pen.text(slot, head + " ", size=size, color=rng.choice(syntax))
        pen.text(Box(x, top, box.right, top + step), tail, size=size, color=rng.choice(syntax))


def draw_tree(pen: Pen, box: Box) -> None:
    """Draw the list of folders and files."""
    pal = pen.palette
    pen.fill(box, pal.panel)
    head, box = box.cut_top(pen.px(14))
    pen.text(head.inset(pen.px(6), 0), "EXPLORER", size=6.5, color=pal.muted)
    step = pen.px(11)
    for row in range(min(box.height // step, pen.many(3, 34))):
        depth = pen.rng.randint(0, 3)
        line = Box(
            box.left + pen.px(6 + 7 * depth),
            box.top + row * step,
            box.right,
            box.top + (row + 1) * step,
        )
        if pen.rng.random() < 0.06:
            pen.fill(
                Box(box.left, line.top, box.right, line.bottom), mix(pal.panel, pal.accent, 0.4)
            )
        mark, label = line.cut_left(pen.px(8))
        pen.fill(mark.middle(pen.px(4), pen.px(4)), tint(pen.rng.random(), 0.5, 0.8))
        name = pen.word("files") + (pen.word("suffixes") if depth else "")
        pen.text(label, name, size=7, color=mix(pal.ink, pal.panel, 0.15))


def draw_file_tabs(pen: Pen, box: Box) -> Box:
    """Draw the row of open files; returns what is left below."""
    bar, rest = box.cut_top(pen.px(14))
    pal = pen.palette
    pen.fill(bar, pal.panel)
    for index, cell in enumerate(bar.cut_left(pen.px(70 * pen.rng.randint(1, 5)))[0].grid(5, 1, 1)):
        if index == 0:
            pen.fill(cell, pal.paper)
            pen.fill(cell.cut_top(max(1, pen.px(1)))[0], pal.accent)
        pen.text(cell.inset(pen.px(4), 0), pen.word("files") + pen.word("suffixes"), size=7)
    return rest


def draw_output(pen: Pen, box: Box) -> Box:
    """Draw a panel of program output at the bottom; returns what is left above."""
    panel, rest = box.cut_bottom(box.height * pen.rng.uniform(0.2, 0.4))
    pen.fill(panel, mix(pen.palette.paper, pen.palette.panel, 0.5))
    pen.rule((panel.left, panel.top), (panel.right, panel.top), pen.palette.edge)
    head, body = panel.inset(pen.px(6), 1).cut_top(pen.px(13))
    for label, cell in zip(
        ("PROBLEMS", "OUTPUT", "TERMINAL"), head.cut_left(pen.px(170))[0].grid(3, 1), strict=True
    ):
        pen.text(cell, label, size=6.5, color=pen.palette.muted)
    step = pen.px(10)
    for row in range(min(body.height // step, pen.rng.randint(1, 9))):
        line = Box(body.left, body.top + row * step, body.right, body.top + (row + 1) * step)
        pen.text(line, pen.word("shell"), size=7)
    return rest


def paint_ide(pen: Pen, box: Box) -> None:
    """An editor with icon strip, file tree, tabs, code, perhaps output and a small overview."""
    pal, rng = pen.palette, pen.rng
    box = draw_menu_bar(pen, box) if rng.random() < 0.6 else box
    box = draw_status_bar(pen, box, pal.accent if rng.random() < 0.6 else None)
    if rng.random() < 0.7:
        strip, box = box.cut_left(pen.px(20))
        pen.fill(strip, mix(pal.panel, pal.edge, 0.5))
        for index in range(5):
            slot = Box(
                strip.left,
                strip.top + pen.px(18 * index),
                strip.right,
                strip.top + pen.px(18 * index + 18),
            )
            pen.icon(slot.middle(pen.px(9), pen.px(9)), pal.muted)
    side, box = box.cut_left(box.width * rng.uniform(0.16, 0.28))
    draw_tree(pen, side)
    box = draw_file_tabs(pen, box)
    box = draw_output(pen, box) if rng.random() < 0.5 else box
    if rng.random() < 0.5:
        small, box = box.cut_right(pen.px(34))
        draw_code(pen, small, size=2.5, numbers=False)
    draw_code(pen, draw_scroll_bar(pen, box), size=rng.choice((7, 8, 9)))


def paint_light_editor(pen: Pen, box: Box) -> None:
    """A plain code editor: menus, tool bar, tabs and code only."""
    box = draw_tool_bar(pen, draw_menu_bar(pen, box))
    box = draw_file_tabs(pen, draw_status_bar(pen, box))
    box = draw_output(pen, box) if pen.rng.random() < 0.4 else box
    draw_code(pen, draw_scroll_bar(pen, box), size=pen.rng.choice((7, 8.5, 10)))


def paint_split_code(pen: Pen, box: Box) -> None:
    """Two or three columns of code, or code beside its output."""
    box = draw_status_bar(pen, draw_file_tabs(pen, box), pen.palette.accent)
    columns = box.grid(pen.rng.randint(2, 3), 1, max(1, pen.px(1)))
    for column in columns[:-1]:
        draw_code(pen, column, size=pen.rng.choice((6.5, 7.5)))
    draw_code(pen, draw_output(pen, columns[-1]), size=7)


def paint_notebook(pen: Pen, box: Box) -> None:
    """A computing notebook: cells of code with results and plots below them."""
    pal = pen.palette
    box = draw_tool_bar(pen, draw_menu_bar(pen, box))
    if pen.rng.random() < 0.4:
        side, box = box.cut_left(box.width * 0.2)
        draw_tree(pen, side)
    pen.fill(box, pal.paper)
    body = draw_scroll_bar(pen, box).inset(pen.px(pen.rng.choice((8, 30))), pen.px(6))
    while body.height > pen.px(30):
        cell, body = body.cut_top(pen.px(pen.rng.randint(22, 75)))
        label, cell = cell.cut_left(pen.px(24))
        pen.text(
            label.cut_top(pen.px(10))[0], f"[{pen.rng.randint(1, 60)}]", size=7, color=pal.accent
        )
        pen.frame(cell, pal.edge)
        draw_code(pen.recolor(pal), cell.inset(2), size=7, numbers=False)
        kind = pen.rng.randrange(3)
        if kind == 0:
            plot, body = body.cut_top(pen.px(pen.rng.randint(60, 110)))
            draw_chart(pen, plot.inset(pen.px(24), 0).cut_left(pen.px(190))[0])
        elif kind == 1:
            y = pen.prose(
                body.inset(pen.px(24), pen.px(3)), size=7, num_lines=pen.rng.randint(1, 4)
            )
            body = body.cut_top(y - body.top)[1]
        body = body.cut_top(pen.px(8))[1]


def paint_review(pen: Pen, box: Box) -> None:
    """A code review page: files with red and green lines and comments."""
    pal = pen.palette
    head, box = box.cut_top(pen.px(34))
    pen.fill(head, pal.panel)
    pen.fill(box, pal.paper)
    pen.text(
        head.inset(pen.px(14), 0), f"Fix {pen.word('files')} #{pen.rng.randint(10, 900)}", size=12
    )
    pen.button(
        head.cut_right(pen.px(64))[0].inset(pen.px(6), pen.px(9)), "Merge", color=(46, 140, 70)
    )
    body = draw_scroll_bar(pen, box).inset(pen.px(14), pen.px(8))
    if pen.rng.random() < 0.5:
        side, body = body.cut_left(body.width * 0.22)
        draw_tree(pen, side)
    step = pen.px(10.5)
    added, removed = mix(pal.paper, (60, 190, 90), 0.22), mix(pal.paper, (230, 70, 70), 0.22)
    for row in range(body.height // step):
        line = Box(body.left, body.top + row * step, body.right, body.top + (row + 1) * step)
        kind = pen.rng.random()
        if kind < 0.07:
            pen.fill(line, pal.panel)
            pen.text(
                line.inset(pen.px(6), 0),
                pen.word("files") + pen.word("suffixes"),
                size=7.5,
                bold=True,
            )
            continue
        if kind < 0.55:
            pen.fill(line, added if kind < 0.33 else removed)
        pen.text(line.inset(pen.px(26), 0), pen.word("code"), size=7)
