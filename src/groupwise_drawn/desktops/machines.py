"""Painters of system work: terminals, task managers, settings, files, packages."""

from groupwise_drawn.desktops.chrome import draw_menu_bar, draw_scroll_bar, draw_status_bar
from groupwise_drawn.desktops.geometry import Box
from groupwise_drawn.desktops.pen import Pen
from groupwise_drawn.desktops.sheets import draw_walk
from groupwise_drawn.desktops.theme import Color, mix, tint

__all__ = [
    "paint_files",
    "paint_monitor",
    "paint_settings",
    "paint_split_terminal",
    "paint_terminal",
]


def pick_screen(pen: Pen) -> tuple[Color, Color, Color]:
    """Background, text and prompt colour of a terminal."""
    style = pen.rng.randrange(6)
    if style == 0:
        return (252, 252, 248), (30, 30, 30), (30, 90, 170)
    if style == 1:
        return tint(pen.rng.uniform(0.75, 0.9), 0.65, 0.2), (235, 235, 235), (140, 220, 90)
    if style == 2:
        return tint(0.6, 0.8, 0.3), (235, 238, 245), (240, 220, 120)
    ink = pen.rng.choice(((225, 225, 225), (110, 230, 110), (200, 200, 190)))
    return (
        pen.rng.choice(((0, 0, 0), (12, 12, 14), (30, 32, 38))),
        ink,
        tint(pen.rng.random(), 0.6, 0.9),
    )


def draw_terminal(pen: Pen, box: Box, colors: tuple[Color, Color, Color], size: float) -> None:
    """Fill the box with lines of commands and their output, ending in a cursor."""
    back, ink, prompt = colors
    pen.fill(box, back)
    step = max(4, pen.px(size * 1.4))
    inner = box.inset(pen.px(4), pen.px(3))
    num_rows = max(1, inner.height // step)
    num_lines = max(1, min(num_rows - 1, round(num_rows * min(1, pen.fullness * 1.3))))
    for row in range(num_lines):
        line = Box(inner.left, inner.top + row * step, inner.right, inner.top + (row + 1) * step)
        if pen.rng.random() < 0.06:
            continue
        text = pen.word("shell")
        if text.startswith("$"):
            line = line.cut_left(pen.text(line, "user@host:~", size=size, color=prompt))[1]
        pen.text(line, text, size=size, color=ink)
    top = inner.top + num_lines * step
    pen.fill(Box(inner.left, top, inner.left + pen.px(4), top + step - 1), ink)


def paint_terminal(pen: Pen, box: Box) -> None:
    """One terminal, with or without menus."""
    if pen.rng.random() < 0.5:
        box = draw_menu_bar(pen, box, num_menus=4)
    if pen.rng.random() < 0.6:
        box = draw_scroll_bar(pen, box)
    draw_terminal(pen, box, pick_screen(pen), pen.rng.choice((7, 8, 9.5)))


def paint_split_terminal(pen: Pen, box: Box) -> None:
    """A terminal divided into panes, one of them with load bars."""
    colors = pick_screen(pen)
    status, box = box.cut_bottom(pen.px(10))
    pen.fill(status, colors[2])
    pen.text(status.inset(3, 0), "[0] 1:bash  2:top* 3:logs", size=7, color=(20, 20, 20))
    left, right = box.cut_left(box.width * pen.rng.uniform(0.4, 0.6))
    draw_terminal(pen, left, colors, 7)
    top, low = right.cut_top(right.height * pen.rng.uniform(0.3, 0.6))
    pen.fill(top, colors[0])
    for row in top.inset(pen.px(5)).grid(1, 8):
        name, bar = row.cut_left(pen.px(20))
        pen.text(name, f"{pen.rng.randint(1, 16)}", size=7, color=colors[1])
        bar = bar.inset(0, max(1, row.height // 4))
        pen.fill(
            bar.cut_left(bar.width * pen.rng.random())[0], tint(pen.rng.uniform(0, 0.35), 0.8, 0.8)
        )
    draw_terminal(pen, low.inset(1), colors, 7)


def paint_monitor(pen: Pen, box: Box) -> None:
    """A task manager: graphs of load or a table of processes, or both."""
    pal = pen.palette
    box = draw_status_bar(pen, draw_menu_bar(pen, box, num_menus=3))
    pen.fill(box, pal.paper)
    share = pen.rng.choice((0.0, 0.35, 0.6, 1.0))
    graphs, table = box.inset(pen.px(6)).cut_top(box.height * share)
    if share:
        columns = pen.rng.randint(1, 2)
        for cell in graphs.grid(columns, pen.rng.randint(1, 3), pen.px(6)):
            color = tint(pen.rng.random(), 0.7, 0.8)
            label, plot = cell.cut_top(pen.px(11))
            pen.text(label, pen.rng.choice(("CPU", "Memory", "Disk 0 (C:)", "Network")), size=7)
            for line in plot.grid(1, 4):
                pen.rule((line.left, line.top), (line.right, line.top), pal.edge)
            draw_walk(pen, plot, color, filled=True)
            pen.frame(plot, color)
    draw_process_table(pen, table)


def draw_process_table(pen: Pen, box: Box) -> None:
    """Draw rows of a process name and four numbers, warm where they are high."""
    step = pen.px(11)
    for row in range(box.height // step):
        line = Box(box.left, box.top + row * step, box.right, box.top + (row + 1) * step)
        if row == 0:
            pen.fill(line, pen.palette.panel)
        name, numbers = line.cut_left(line.width * 0.36)
        pen.text(name.inset(pen.px(4), 0), pen.word("processes"), size=7)
        for cell in numbers.grid(4, 1, 1):
            load = pen.rng.random() ** 3
            pen.fill(cell, mix(pen.palette.paper, (240, 170, 40), load * 0.7))
            pen.text(cell.inset(3, 0), f"{load * 90:.1f}", size=7, align="right")


def paint_settings(pen: Pen, box: Box) -> None:
    """System settings: a list of sections and rows with switches, or a grid of symbols."""
    pal = pen.palette
    pen.fill(box, pal.paper)
    side, body = box.cut_left(box.width * pen.rng.uniform(0.22, 0.32))
    pen.fill(side, pal.panel)
    for index, cell in enumerate(side.inset(pen.px(5)).grid(1, 12)):
        if index == 2:
            pen.rounded(cell, mix(pal.panel, pal.accent, 0.4))
        mark, label = cell.cut_left(pen.px(15))
        pen.icon(mark.middle(pen.px(7), pen.px(7)), tint(pen.rng.random(), 0.5, 0.8))
        pen.text(label, pen.word("settings"), size=7.5)
    head, body = body.inset(pen.px(14), pen.px(8)).cut_top(pen.px(24))
    pen.text(head, pen.word("settings"), size=13, bold=True)
    for cell in body.grid(1, pen.rng.randint(5, 8), pen.px(5))[: pen.many(3, 8)]:
        pen.rounded(cell, mix(pal.paper, pal.panel, 0.6), edge=pal.edge)
        label, control = cell.inset(pen.px(8), 1).cut_left(cell.width * 0.65)
        upper, lower = label.cut_top(label.height * 0.5)
        pen.text(upper, pen.word("settings"), size=8)
        pen.prose_line(lower, size=6.5, color=pal.muted)
        on = pen.rng.random() < 0.6
        switch = control.cut_right(pen.px(18))[0].middle(pen.px(17), pen.px(9))
        pen.rounded(switch, pal.accent if on else pal.muted, radius=5)
        pen.disc(
            (
                switch.right - pen.px(4) if on else switch.left + pen.px(4),
                (switch.top + switch.bottom) / 2,
            ),
            pen.px(3),
            (250, 250, 250),
        )


def paint_files(pen: Pen, box: Box) -> None:
    """A file manager or disk tool: places at the left, folders as a grid or list."""
    pal = pen.palette
    box = draw_status_bar(pen, draw_menu_bar(pen, box, num_menus=5))
    path, box = box.cut_top(pen.px(16))
    pen.fill(path, pal.panel)
    pen.frame(path.inset(pen.px(40), pen.px(2)), pal.edge, pal.paper)
    pen.text(path.inset(pen.px(46), 0), "/home/user/" + pen.word("files"), size=7)
    side, body = box.cut_left(box.width * 0.22)
    pen.fill(side, pal.panel)
    pen.fill(body, pal.paper)
    for cell in side.inset(pen.px(6)).grid(1, 11):
        pen.text(cell.inset(pen.px(10), 0), pen.word("settings"), size=7)
    folder = tint(pen.rng.choice((0.12, 0.58, 0.08)), 0.6, 0.9)
    if pen.rng.random() < 0.6:
        for cell in body.inset(pen.px(8)).grid(6, 5, pen.px(6))[: pen.many(3, 26)]:
            art, label = cell.cut_top(cell.height * 0.65)
            is_folder = pen.rng.random() < 0.6
            shape = art.middle(art.height * (1.1 if is_folder else 0.75), art.height * 0.8)
            pen.rounded(shape, folder if is_folder else pal.panel, radius=2, edge=pal.edge)
            pen.text(label, pen.word("files"), size=6.5, align="center")
        return
    for cell in body.inset(pen.px(4)).grid(1, 22)[: pen.many(4, 22)]:
        mark, line = cell.cut_left(pen.px(14))
        pen.fill(mark.middle(pen.px(8), pen.px(6)), folder)
        for part in line.grid(3, 1):
            pen.text(part, pen.word("files") + pen.word("suffixes"), size=7)
