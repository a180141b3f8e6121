"""The plots of a comparison: every difference with its interval, and the curves of training.

Small single panels that stay readable on a phone, in the words of the report's language; heat maps
are tables (``shading``). Nothing here computes a difference.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from matplotlib.ticker import FuncFormatter, MaxNLocator

from groupwise.evaluation.comparison.content import Comparison, Curve, Gap, Versus
from groupwise.evaluation.comparison.words import Words
from groupwise.evaluation.report import numbers
from groupwise.evaluation.report.canvas import INK, MUTED, Axes, pick_color
from groupwise.evaluation.report.curves import draw_series

MAX_ROWS = 24
MIN_ROWS = 8
MAX_CURVES = 12
_FOREST_WIDTH = 4.6
_CURVE_SIZE = (3.8, 3.0)
_BAND_ALPHA = 0.18
_MAX_NAME = 22
_MAX_TITLE = 40


@dataclass(frozen=True, slots=True)
class Panel:
    """One plot: file name, section, title, its content in words, and what draws it."""

    name: str
    section: str
    title: str
    alt: str
    draw: Callable[[Axes], None]
    size: tuple[float, float]


def list_panels(comparison: Comparison, words: Words) -> list[Panel]:
    """Return every plot that the comparison has numbers for."""
    return [*plot_forests(comparison, words), *plot_curves(comparison, words)]


@dataclass(frozen=True, slots=True)
class _Row:
    """One line of a forest plot."""

    title: str
    text: str
    gap: Gap
    color: str
    is_marked: bool


def plot_forests(comparison: Comparison, words: Words) -> list[Panel]:
    """Return the tested differences with their intervals: one panel per pair, or one for all.

    Of more than 24 rows in all the largest differences of each pair are shown, in their order.
    """
    pairs = [
        [_make_row(comparison, words, index, gap) for gap in _choose_gaps(comparison, pair)]
        for index, pair in enumerate(comparison.versus)
    ]
    titles = [
        _title_forest(pair, len(rows), words)
        for pair, rows in zip(comparison.versus, pairs, strict=True)
    ]
    if not comparison.axes:
        pairs = [[row for rows in pairs for row in rows]]
        titles = [f"{words.title_measure(comparison.measure)} · {comparison.split}"]
    return [
        _plot_forest(number, title, rows, words)
        for number, (title, rows) in enumerate(zip(titles, pairs, strict=True), start=1)
        if rows
    ]


def _title_forest(pair: Versus, num_shown: int, words: Words) -> str:
    title = words.title_pair(pair.first, pair.second)
    if num_shown == pair.num_tested:
        return title
    return words.label("largest", pair=title, shown=num_shown, all=pair.num_tested)


def _choose_gaps(comparison: Comparison, pair: Versus) -> list[Gap]:
    tested = [gap for gap in pair.gaps if gap.test is not None]
    num_rows = max(MIN_ROWS, MAX_ROWS // len(comparison.versus))
    largest = sorted(tested, key=lambda gap: -abs(gap.difference or 0.0))[:num_rows]
    return [gap for gap in tested if any(gap is one for one in largest)]


def _make_row(comparison: Comparison, words: Words, index: int, gap: Gap) -> _Row:
    pair = comparison.versus[index]
    return _Row(
        title=words.place(gap.coordinates) or words.title_pair(pair.first, pair.second),
        text=_describe_gap(gap, words),
        gap=gap,
        color=pick_color(index),
        is_marked=gap.is_clear and comparison.is_fair,
    )


def _plot_forest(number: int, title: str, rows: Sequence[_Row], words: Words) -> Panel:
    return Panel(
        name=f"forest-{number}",
        section="forest",
        title=title,
        alt="; ".join(f"{row.title}: {row.text}" for row in rows),
        draw=partial(_draw_forest, rows, words.label("forest_axis")),
        size=(_FOREST_WIDTH, 0.75 + 0.44 * len(rows)),
    )


def _describe_gap(gap: Gap, words: Words) -> str:
    test = gap.test
    ends = f" ({words.interval(test.low, test.high)})" if test else ""
    return f"{numbers.format_points(gap.difference or 0.0)}{ends}"


def _draw_forest(rows: Sequence[_Row], title: str, axes: Axes) -> None:
    for place, row in enumerate(rows):
        test = row.gap.test
        if test is None:
            continue
        ends = [100 * test.low, 100 * test.high]
        axes.plot(ends, [place] * 2, color=row.color, lw=2.2, solid_capstyle="butt")
        axes.plot(
            [100 * (row.gap.difference or 0.0)],
            [place],
            marker="D" if row.is_marked else "o",
            color=row.color,
            ms=6.5,
            mec="white",
            mew=0.8,
        )
        weight = "bold" if row.is_marked else "normal"
        transform = axes.get_yaxis_transform()
        label = {"transform": transform, "va": "center", "fontsize": 8.5, "fontweight": weight}
        axes.text(0, place - 0.42, _shorten(row.title, _MAX_TITLE), color=INK, ha="left", **label)
        axes.text(1, place - 0.42, row.text, color=INK, ha="right", **label)
    axes.axvline(0, color=MUTED, lw=1, zorder=0)
    axes.set_ylim(len(rows) - 0.5, -0.8)
    axes.set(yticks=[], xlabel=title)
    axes.xaxis.set_major_formatter(FuncFormatter(_format_tick))
    axes.spines["left"].set_visible(False)


def _format_tick(value: float, _: int) -> str:
    return f"{value:+g}".replace("-", "\u2212") if value else "0"


def plot_curves(comparison: Comparison, words: Words) -> list[Panel]:
    """Return one panel per training step and logged number, a line per contender."""
    found: dict[tuple[str, str], list[Curve]] = {}
    for curve in comparison.curves:
        found.setdefault((curve.step_name, curve.key), []).append(curve)
    return [_plot_curve(comparison, words, curves) for curves in list(found.values())[:MAX_CURVES]]


def _plot_curve(comparison: Comparison, words: Words, curves: Sequence[Curve]) -> Panel:
    step, key = curves[0].step_name, curves[0].key
    title = words.label("plot_of", key=words.title_series(key), step=step)
    titles = {name: words.title_contender(name) for name in comparison.names}
    colors = {name: pick_color(index) for index, name in enumerate(comparison.names)}
    told = [
        f"{titles[one.contender]} {numbers.format_plain(one.mean[0])} → "
        f"{numbers.format_plain(one.mean[-1])}"
        for one in curves
    ]
    return Panel(
        name=f"curve-{step}-{key.replace('/', '-').replace('_', '-')}",
        section="training",
        title=title,
        alt=f"{title}: {'; '.join(told)}",
        draw=partial(_draw_curves, curves, titles, colors, words.label("step")),
        size=_CURVE_SIZE,
    )


def _draw_curves(
    curves: Sequence[Curve],
    titles: Mapping[str, str],
    colors: Mapping[str, str],
    step: str,
    axes: Axes,
) -> None:
    for curve in curves:
        color = colors[curve.contender]
        title = _shorten(titles[curve.contender], _MAX_NAME)
        if curve.num_runs == 1:
            draw_series(axes, (list(curve.steps), list(curve.mean)), color=color, label=title)
            continue
        axes.fill_between(curve.steps, curve.low, curve.high, color=color, alpha=_BAND_ALPHA, lw=0)
        axes.plot(curve.steps, curve.mean, color=color, lw=1.8, label=title)
    axes.set(xlabel=step)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(_format_value))
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2, handlelength=1.4)


def _format_value(value: float, _: int) -> str:
    return numbers.format_plain(value).replace("-", "\u2212", 1 if value < 0 else 0)


def _shorten(name: str, length: int) -> str:
    return name if len(name) <= length else f"{name[: length - 1]}…"
