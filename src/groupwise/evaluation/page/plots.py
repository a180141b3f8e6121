"""The plots of pages: small single panels that stay readable on a phone.

Each has a title, a text for those who do not see it, and a function that draws it. Nothing here
reads files or computes a metric.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
from matplotlib.ticker import FuncFormatter, MaxNLocator
from scipy.ndimage import uniform_filter1d

from groupwise.evaluation.page.blocks import Plot
from groupwise.evaluation.page.canvas import INK, MUTED, Axes, make_percent_axis
from groupwise.evaluation.page.numbers import format_plain, format_share
from groupwise.evaluation.page.words import Words
from groupwise.evaluation.statistics import Interval

Form = Literal["share", "percent", "plain"]
_WIDTH = 4.6
_CURVE_SIZE = (3.8, 3.0)
_TWO_AXES_SIZE = (4.4, 3.0)
_BAND_ALPHA = 0.18
_MAX_TITLE = 40
_MAX_NAME = 22


def name_file(*parts: str) -> str:
    """Return a file name without its ending that a Markdown link can hold."""
    return re.sub(r"[^\w.-]+", "-", "-".join(parts))


@dataclass(frozen=True, slots=True)
class Bar:
    """One value with its interval: a line of a forest plot.

    Attributes:
        title: what it is of.
        text: value and interval as text.
        value: a share or a difference of shares.
        ends: its interval.
        color: of the bar.
        is_marked: stands out.
    """

    title: str
    text: str
    value: float
    ends: Interval
    color: str
    is_marked: bool = False


def plot_bars(
    name: str, title: str, bars: Sequence[Bar], *, axis: str = "", caption: str = ""
) -> Plot:
    """Return values with their intervals below each other.

    Args:
        name: of the file.
        title: of the plot.
        bars: from top to bottom.
        axis: title of the axis; differences then, in points around 0. Empty: shares.
        caption: how to read it.
    """
    return Plot(
        name=name,
        title=title,
        alt="; ".join(f"{bar.title}: {bar.text}" for bar in bars),
        draw=partial(_draw_bars, bars, axis),
        size=(_WIDTH, 0.75 + 0.44 * len(bars)),
        caption=caption,
    )


def _draw_bars(bars: Sequence[Bar], title: str, axes: Axes) -> None:
    for place, bar in enumerate(bars):
        _draw_bar(bar, place, axes)
    if title:
        axes.axvline(0, color=MUTED, lw=1, zorder=0)
        axes.xaxis.set_major_formatter(FuncFormatter(_format_points))
    else:
        ends = [end for bar in bars for end in bar.ends]
        axes.set_xlim(max(0.0, np.floor(min(ends) * 10) / 10 - 0.02), 1.005)
        axes.xaxis.set_major_formatter(make_percent_axis())
    axes.set_ylim(len(bars) - 0.5, -0.8)
    axes.set(yticks=[], xlabel=title)
    axes.spines["left"].set_visible(False)


def _draw_bar(bar: Bar, place: int, axes: Axes) -> None:
    axes.plot(bar.ends, [place] * 2, color=bar.color, solid_capstyle="butt", lw=2.2)
    marker = "D" if bar.is_marked else "o"
    look = {"marker": marker, "ms": 6.5, "mec": "white", "mew": 0.8, "clip_on": False}
    axes.plot([bar.value], [place], color=bar.color, **look)
    label = {
        "transform": axes.get_yaxis_transform(),
        "va": "center",
        "fontsize": 8.5,
        "fontweight": "bold" if bar.is_marked else "normal",
        "color": INK,
    }
    axes.text(0, place - 0.42, shorten(bar.title, _MAX_TITLE), ha="left", **label)
    axes.text(1, place - 0.42, bar.text, ha="right", **label)


def _format_points(value: float, _: int) -> str:
    return f"{100 * value:+g}".replace("-", "\u2212") if round(value, 9) else "0"


@dataclass(frozen=True, slots=True)
class Line:
    """One logged number over the steps of a training.

    Attributes:
        title: in the legend; may be empty.
        steps: of the values.
        values: the numbers.
        color: of the line.
        low: lowest of several runs at each step; empty for one run.
        high: highest of them.
        has_marks: drawn as points that nothing is smoothed of.
    """

    title: str
    steps: Sequence[float]
    values: Sequence[float]
    color: str
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    has_marks: bool = False


def plot_lines(
    name: str,
    title: str,
    lines: Sequence[Line],
    words: Words,
    *,
    form: Form = "plain",
    caption: str = "",
) -> Plot:
    """Return lines over steps: of one run faint values with a moving mean, of several a band.

    Args:
        name: of the file.
        title: of the plot.
        lines: at least one; with several each needs a title.
        words: for its axis.
        form: how values look: ``percent``, or ``share`` with an axis that ends at 1.
        caption: how to read it.
    """
    told = [
        f"{line.title} {format_plain(line.values[0])} → {format_plain(line.values[-1])}".strip()
        for line in lines
    ]
    return Plot(
        name=name,
        title=title,
        alt=f"{title}: {'; '.join(told)}",
        draw=partial(_draw_lines, lines, form, words.label("step")),
        size=_CURVE_SIZE,
        caption=caption,
    )


def plot_beside_share(
    name: str, title: str, line: Line, share: Line, words: Words, *, caption: str = ""
) -> Plot:
    """Return a line by the axis on the left and a share over the same steps by that on the right.

    Args:
        name: of the file.
        title: of the plot.
        line: its axis has its title and colour.
        share: likewise, from 0 to 100 %.
        words: for the axis of the steps.
        caption: how to read it.
    """
    told = "; ".join(
        f"{one.title} {format_one(one.values[0])} → {format_one(one.values[-1])}"
        for one, format_one in ((line, format_plain), (share, format_share))
    )
    return Plot(
        name=name,
        title=title,
        alt=f"{title}: {told}",
        draw=partial(_draw_beside_share, line, share, words.label("step")),
        size=_TWO_AXES_SIZE,
        caption=caption,
    )


def _draw_beside_share(line: Line, share: Line, step: str, axes: Axes) -> None:
    _draw_lines([replace(line, title="")], "plain", step, axes)
    other = axes.twinx()
    _draw_line(share, other)
    other.set_ylim(-0.01, 1.02)
    other.yaxis.set_major_formatter(make_percent_axis())
    other.grid(visible=False)
    axes.set_ylabel(line.title, color=line.color)
    other.set_ylabel(share.title, color=share.color)


def explain_smoothing(num_points: int, words: Words) -> str:
    """Return how a line of so many logged steps is drawn."""
    window = choose_window(num_points)
    return words.label("smoothed", window=window) if window > 1 else words.label("not_smoothed")


def _draw_lines(lines: Sequence[Line], form: Form, step: str, axes: Axes) -> None:
    for line in lines:
        _draw_line(line, axes)
    values = [value for line in lines for value in (*line.values, *line.low)]
    axes.set(xlabel=step)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    is_positive = min(values) >= 0
    if form == "share":
        low = np.floor((min(values) - 0.1) * 5) / 5
        axes.set_ylim((max(0.0, low) if is_positive else low) - 0.01, 1.02)
    elif is_positive:
        axes.set_ylim(bottom=0)
    is_plain = form == "plain"
    axes.yaxis.set_major_formatter(FuncFormatter(_format_tick) if is_plain else make_percent_axis())
    if any(line.title for line in lines):
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2, handlelength=1.4)


def _draw_line(line: Line, axes: Axes) -> None:
    steps, values, color = line.steps, line.values, line.color
    label = shorten(line.title, _MAX_NAME)
    if line.has_marks:
        axes.plot(steps, values, color=color, lw=1.2, marker="D", ms=5, label=label)
    elif line.low:
        axes.fill_between(steps, line.low, line.high, color=color, alpha=_BAND_ALPHA, lw=0)
        axes.plot(steps, values, color=color, lw=1.8, label=label)
    elif choose_window(len(values)) == 1:
        axes.plot(steps, values, color=color, lw=1.6, marker="o", ms=3, label=label)
    else:
        axes.plot(steps, values, color=color, lw=0.9, alpha=0.28)
        axes.plot(steps, smooth(values), color=color, lw=2, label=label)


def choose_window(num_points: int) -> int:
    """Return the width of the moving mean: about a twentieth of the points, odd, at least 1."""
    return 2 * (num_points // 40) + 1


def smooth(values: Sequence[float]) -> list[float]:
    """Return the moving mean of ``choose_window`` values; ends repeat their last value."""
    window = choose_window(len(values))
    return [float(x) for x in uniform_filter1d(np.asarray(values), window, mode="nearest")]


def _format_tick(value: float, _: int) -> str:
    return format_plain(value).replace("-", "\u2212", 1 if value < 0 else 0)


def shorten(name: str, length: int) -> str:
    """Return a text of at most ``length`` characters, the last of them … where it was cut."""
    return name if len(name) <= length else f"{name[: length - 1]}…"
