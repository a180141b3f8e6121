"""The plots of pages: small single panels that stay readable on a phone.

Values with intervals, dots per seed, curves over steps with a band, and reliability. Nothing here
reads files or computes a metric.
"""

import io
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import matplotlib as mpl
import numpy as np
from matplotlib import font_manager
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from groupwise.evaluation.predictions import Policies, shorten
from groupwise.evaluation.report.page import Plot
from groupwise.evaluation.report.phrases import MINUS, NBSP, Phrases, format_plain, format_share

if TYPE_CHECKING:
    from groupwise.evaluation.metrics import ReliabilityBin

Axes = Any  # matplotlib.axes.Axes; its methods take keywords without types
Form = Literal["share", "percent", "plain"]
INK, MUTED, FAINT = "#24292f", "#7a828c", "#b4bac2"
_CHINESE_FONTS = (
    *("Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC", "PingFang SC"),
    *("Hiragino Sans GB", "Microsoft YaHei", "WenQuanYi Micro Hei", "SimHei"),
)
_POLICY_COLORS = (
    *("#8b949e", "#a6761d", "#b5578f", "#4a7fd4", "#e08a1e", "#c8502b", "#12856b"),
    *("#7a5bb5", "#3f8fa8"),
)
_PALETTE = ("#12856b", "#4a7fd4", "#c8502b", "#7a5bb5", "#a6761d", "#b5578f", "#3f8fa8")
_STYLE: dict[str, Any] = {
    **{"axes.axisbelow": True, "axes.edgecolor": FAINT, "axes.facecolor": "#ffffff"},
    **{"axes.grid": True, "axes.labelcolor": MUTED, "axes.labelsize": 9},
    **{"axes.spines.right": False, "axes.spines.top": False, "axes.unicode_minus": True},
    **{"figure.facecolor": "#ffffff", "font.size": 9.5, "grid.color": "#e6e8eb"},
    **{"grid.linewidth": 0.8, "legend.fontsize": 8.5, "legend.frameon": False},
    **{"svg.fonttype": "none", "svg.hashsalt": "groupwise", "text.color": INK},
    **{"xtick.color": MUTED, "xtick.labelsize": 8.5, "ytick.color": MUTED},
    **{"ytick.labelcolor": INK, "ytick.labelsize": 8.5},
}


def color_policy(policy: str, policies: Policies | None = None) -> str:
    """Return the colour of a policy or a training step by its place, the same in every plot."""
    if policies is None or policies.rank(policy) >= len(policies.listed):
        return pick_color(sum(policy.encode()))
    return _POLICY_COLORS[policies.rank(policy) % len(_POLICY_COLORS)]


def pick_color(index: int) -> str:
    """Return the colour of the ``index``-th line."""
    return _PALETTE[index % len(_PALETTE)]


def name_file(*parts: str) -> str:
    """Return a file name without its ending that a Markdown link can hold."""
    return re.sub(r"[^\w.-]+", "-", "-".join(parts))


def render_svg(draw: Callable[[Axes], None], size: tuple[float, float]) -> bytes:
    """Return an SVG whose text stays text; the same drawing gives the same bytes."""
    style: Any = {**_STYLE, "font.family": list(_find_fonts())}
    with mpl.rc_context(style), warnings.catch_warnings():  # pyright: ignore[reportUnknownMemberType]
        # An SVG keeps its text: the reader's fonts draw what this machine has no glyphs for.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure: Any = Figure(figsize=size, layout="constrained")
        draw(figure.add_subplot())
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue()


@cache
def _find_fonts() -> tuple[str, ...]:
    known = set(font_manager.get_font_names())
    return ("DejaVu Sans", *(name for name in _CHINESE_FONTS if name in known))


@dataclass(frozen=True, slots=True)
class Bar:
    """One line of a plot of values: a share, or a difference of shares."""

    title: str  # what it is of
    text: str  # value and interval as text
    value: float
    ends: tuple[float, float]  # its interval
    color: str
    is_marked: bool = False  # stands out
    dots: Sequence[
        float
    ] = ()  # shares that the value is the mean of, drawn in place of an interval


def plot_bars(
    name: str, title: str, bars: Sequence[Bar], *, axis: str = "", caption: str = ""
) -> Plot:
    """Return values with their intervals, or with their dots, below each other.

    With a title of its ``axis`` they are differences, in points around 0; without one, shares.
    """

    def draw(axes: Axes) -> None:
        beside: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "va": "center"}
        beside |= {"fontsize": 8.5, "color": INK}
        for place, bar in enumerate(bars):
            look: dict[str, Any] = {"ms": 6.5, "mec": "white", "mew": 0.8, "clip_on": False}
            look |= {"marker": "D" if bar.is_marked else "o", "color": bar.color}
            if bar.dots:
                rows = [place] * len(bar.dots)
                axes.plot(bar.dots, rows, "o", color=bar.color, alpha=0.7, ms=5.5)
                look = {"marker": "|", "color": INK, "ms": 14}
            else:
                axes.plot(bar.ends, [place] * 2, color=bar.color, solid_capstyle="butt", lw=2.2)
            axes.plot([bar.value], [place], **look)
            weight = "bold" if bar.is_marked else "normal"
            axes.text(0, place - 0.42, shorten(bar.title, 40), fontweight=weight, **beside)
            axes.text(1, place - 0.42, bar.text, ha="right", fontweight=weight, **beside)
        axes.xaxis.set_major_formatter(FuncFormatter(_format_points) if axis else _make_percent())
        if axis:
            axes.axvline(0, color=MUTED, lw=1, zorder=0)
        elif not any(bar.dots for bar in bars):
            lowest = min(end for bar in bars for end in bar.ends)
            axes.set_xlim(max(0.0, np.floor(lowest * 10) / 10 - 0.02), 1.005)
        axes.set(ylim=(len(bars) - 0.5, -0.8), yticks=[], xlabel=axis)
        axes.spines["left"].set_visible(False)

    told = (", ".join(map(format_share, bar.dots)) or bar.text for bar in bars)
    alt = "; ".join(f"{bar.title}: {text}" for bar, text in zip(bars, told, strict=True))
    return Plot(name, title, alt, draw, (4.6, 0.75 + 0.44 * len(bars)), caption)


def _format_points(value: float, _: int) -> str:
    return f"{100 * value:+g}".replace("-", MINUS) if round(value, 9) else "0"


def _make_percent() -> PercentFormatter:
    return PercentFormatter(1, decimals=0, symbol=f"{NBSP}%")


def plot_seeds(
    name: str, title: str, values: Sequence[tuple[str, Sequence[float]]], *, caption: str = ""
) -> Plot:
    """Return a row of dots per method, a share for each seed, with a line at their mean."""
    bars: list[Bar] = []
    for place, (method, shares) in enumerate(values):
        mean = float(np.mean(shares))
        text, color = format_share(mean), pick_color(place)
        bars.append(Bar(method, text, mean, (mean, mean), color, dots=shares))
    return plot_bars(name, title, bars, caption=caption)


@dataclass(frozen=True, slots=True)
class Line:
    """One logged number over the steps of a training."""

    title: str  # in the legend; may be empty
    steps: Sequence[float]
    values: Sequence[float]
    color: str
    low: Sequence[float] = ()  # the lowest of several runs at each step; empty for one run
    high: Sequence[float] = ()  # the highest of them
    has_marks: bool = False  # drawn as points that nothing is smoothed of


def plot_lines(
    name: str,
    title: str,
    lines: Sequence[Line],
    phrases: Phrases,
    *,
    form: Form = "plain",
    caption: str = "",
) -> Plot:
    """Return lines over steps: of one run faint values with a moving mean, of several a band.

    With several lines each needs a title. Values are in ``form``: ``percent``, or ``share`` with
    an axis that ends at 1.
    """

    def draw(axes: Axes) -> None:
        for line in lines:
            look: dict[str, Any] = {"color": line.color, "label": shorten(line.title, 22)}
            values = line.values
            if line.has_marks:
                look |= {"lw": 1.2, "marker": "D", "ms": 5}
            elif line.low:
                band: dict[str, Any] = {"color": line.color, "alpha": 0.18, "lw": 0}
                axes.fill_between(line.steps, line.low, line.high, **band)
                look["lw"] = 1.8
            elif choose_window(len(values)) == 1:
                look |= {"lw": 1.6, "marker": "o", "ms": 3}
            else:
                axes.plot(line.steps, values, color=line.color, lw=0.9, alpha=0.28)
                values, look["lw"] = smooth(values), 2
            axes.plot(line.steps, values, **look)
        lowest = min(value for line in lines for value in (*line.values, *line.low))
        axes.set(xlabel=phrases.say("step"))
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
        if form == "share":
            low = np.floor((lowest - 0.1) * 5) / 5
            axes.set_ylim((max(0.0, low) if lowest >= 0 else low) - 0.01, 1.02)
        elif lowest >= 0:
            axes.set_ylim(bottom=0)
        plain = FuncFormatter(lambda value, _: format_plain(value))
        axes.yaxis.set_major_formatter(plain if form == "plain" else _make_percent())
        if any(line.title for line in lines):
            axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2, handlelength=1.4)

    told = (
        f"{line.title} {format_plain(line.values[0])} → {format_plain(line.values[-1])}".strip()
        for line in lines
    )
    return Plot(name, title, f"{title}: {'; '.join(told)}", draw, (3.8, 3.0), caption)


def choose_window(num_points: int) -> int:
    """Return the width of the moving mean: about a twentieth of the points, odd, at least 1."""
    return 2 * (num_points // 40) + 1


def smooth(values: Sequence[float]) -> list[float]:
    """Return the moving mean of ``choose_window`` values; ends repeat their last value."""
    window = choose_window(len(values))
    padded = np.pad(np.asarray(values, float), window // 2, mode="edge")
    return np.convolve(padded, np.full(window, 1 / window), "valid").tolist()


def plot_reliability(
    name: str,
    title: str,
    bins: "Sequence[ReliabilityBin]",
    phrases: Phrases,
    *,
    color: str,
    caption: str = "",
) -> Plot:
    """Return how often answers are right by their confidence, with their counts below.

    Some bin must have items.
    """
    filled = [one for one in bins if one.num_items]

    def draw(axes: Axes) -> None:
        start, counts = bins[0].low, [one.num_items for one in bins]
        axes.plot([start, 1], [start, 1], color=MUTED, lw=1, ls=(0, (4, 3)), zorder=1)
        shares = [(one.confidence or 0.0, one.accuracy or 0.0) for one in filled]
        axes.plot(*zip(*shares, strict=True), color=color, lw=1.6, marker="o", ms=5, zorder=3)
        below = axes.inset_axes((0, -0.27, 1, 0.2), sharex=axes)
        widths = [one.high - one.low for one in bins]
        below.bar([one.low for one in bins], counts, widths, align="edge", color=color)
        for patch in below.patches:
            patch.set(alpha=0.45, edgecolor="white", linewidth=0.8)
        right, confidence = phrases.say_each("share_right", "confidence")
        below.set(yticks=[0, max(counts)], ylabel="n", xlabel=confidence, xlim=(start - 0.01, 1.01))
        below.grid(visible=False)
        axes.tick_params(labelbottom=False)
        below.xaxis.set_major_formatter(_make_percent())
        axes.yaxis.set_major_formatter(_make_percent())
        axes.set(ylabel=right, ylim=(-0.03, 1.03))

    told = (
        f"{format_share(one.confidence)} → {format_share(one.accuracy)}, n = {one.num_items}"
        for one in filled
    )
    return Plot(name, title, f"{title}: {'; '.join(told)}", draw, (3.8, 3.3), caption)
