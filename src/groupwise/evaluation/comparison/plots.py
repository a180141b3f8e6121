"""The plots of a comparison: every difference with its interval, and the curves of training.

Heat maps are tables (``grids``). Nothing here computes a difference.
"""

from collections.abc import Sequence

from groupwise.evaluation.comparison.content import Comparison, Gap, Versus
from groupwise.evaluation.comparison.material import Curve
from groupwise.evaluation.page import (
    Bar,
    Line,
    Plot,
    Words,
    name_file,
    numbers,
    pick_color,
    plot_bars,
    plot_lines,
)

MAX_ROWS = 24
MIN_ROWS = 8
MAX_CURVES = 12


def plot_forests(comparison: Comparison, words: Words) -> list[Plot]:
    """Return the tested differences with their intervals: one plot per pair, or one for all.

    Of more than 24 rows in all the largest differences of each pair are shown, in their order.
    """
    pairs = [
        [_make_bar(comparison, words, index, gap) for gap in _choose_gaps(comparison, pair)]
        for index, pair in enumerate(comparison.versus)
    ]
    titles = [
        _title_forest(pair, len(bars), words)
        for pair, bars in zip(comparison.versus, pairs, strict=True)
    ]
    if not comparison.axes:
        pairs = [[bar for bars in pairs for bar in bars]]
        titles = [f"{words.title_measure(comparison.measure)} · {comparison.split}"]
    return [
        plot_bars(f"forest-{number}", title, bars, axis=words.label("forest_axis"))
        for number, (title, bars) in enumerate(zip(titles, pairs, strict=True), start=1)
        if bars
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


def _make_bar(comparison: Comparison, words: Words, index: int, gap: Gap) -> Bar:
    assert gap.test is not None
    pair, value = comparison.versus[index], gap.difference or 0.0
    ends = gap.test.low, gap.test.high
    return Bar(
        title=words.place(gap.coordinates) or words.title_pair(pair.first, pair.second),
        text=f"{numbers.format_points(value)} ({words.interval(*ends)})",
        value=value,
        ends=ends,
        color=pick_color(index),
        is_marked=gap.is_clear and comparison.is_fair,
    )


def plot_curves(comparison: Comparison, words: Words) -> list[Plot]:
    """Return one plot per training step and logged number, a line per system."""
    found: dict[tuple[str, str], list[Curve]] = {}
    for curve in comparison.curves:
        found.setdefault((curve.step_name, curve.key), []).append(curve)
    return [_plot_curve(comparison, words, curves) for curves in list(found.values())[:MAX_CURVES]]


def _plot_curve(comparison: Comparison, words: Words, curves: Sequence[Curve]) -> Plot:
    step, key = curves[0].step_name, curves[0].key
    colors = {name: pick_color(index) for index, name in enumerate(comparison.names)}
    lines = [
        Line(
            title=words.title_system(one.system),
            steps=one.steps,
            values=one.mean,
            color=colors[one.system],
            low=one.low if one.num_runs > 1 else (),
            high=one.high if one.num_runs > 1 else (),
        )
        for one in curves
    ]
    title = words.label("plot_of", key=words.title("series", key), step=step)
    name = name_file("curve", step, key.replace("/", "-").replace("_", "-"))
    return plot_lines(name, title, lines, words)
