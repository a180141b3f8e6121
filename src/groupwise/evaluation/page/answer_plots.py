"""The plots of answers: how often each truth got each, and how far confidences can be trusted."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from groupwise.evaluation.calibration import ReliabilityBin
from groupwise.evaluation.confusion import Confusion
from groupwise.evaluation.page.blocks import Plot
from groupwise.evaluation.page.canvas import (
    FAINT,
    INK,
    MUTED,
    Axes,
    can_draw,
    make_percent_axis,
)
from groupwise.evaluation.page.numbers import format_share
from groupwise.evaluation.page.words import Words


def plot_confusion(name: str, title: str, table: Confusion, words: Words) -> Plot:
    """Return how often each truth got each answer."""
    invalid = words.label("invalid_answer")
    told = "; ".join(
        f"{truth}: " + ", ".join(f"{count} {name}" for name, count in zip(names, row, strict=True))
        for truth, row in zip(table.labels, table.counts, strict=True)
        for names in [(*table.labels, invalid)]
    )
    names, key = _name_ticks((*table.labels, invalid))
    axes = words.label("answer"), words.label("truth")
    return Plot(
        name=name,
        title=title,
        alt=f"{title}: {told}",
        draw=partial(_draw_confusion, table, names, axes),
        size=(3.6, 1.3 + 0.62 * len(table.labels)),
        caption=key,
    )


def _name_ticks(labels: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """Return labels, or short marks and what they stand for where the fonts lack a character."""
    if all(map(can_draw, labels)):
        return tuple(labels), ""
    marks = tuple(f"L{number}" for number in range(1, len(labels) + 1))
    return marks, "; ".join(f"{mark} = {one}" for mark, one in zip(marks, labels, strict=True))


def _draw_confusion(
    table: Confusion, names: Sequence[str], titles: tuple[str, str], axes: Axes
) -> None:
    counts = np.asarray(table.counts, dtype=np.float64)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    axes.pcolormesh(shares, cmap="Blues", vmin=0, vmax=1.15, edgecolors="white", linewidth=2)
    for row, column in np.ndindex(counts.shape):
        place = (column + 0.5, row + 0.5)
        is_empty = not counts[row, column]
        color = "white" if shares[row, column] > 0.55 else FAINT if is_empty else INK
        look = {"ha": "center", "color": color}
        axes.annotate(f"{int(counts[row, column])}", place, va="bottom", fontsize=12, **look)
        share = "" if is_empty else format_share(shares[row, column])
        below = {"xytext": (0, -3), "textcoords": "offset points", "va": "top", "fontsize": 8}
        axes.annotate(share, place, **below, **look)
    axes.set_xticks(np.arange(len(names)) + 0.5, names)
    axes.set_yticks(np.arange(len(names) - 1) + 0.5, names[:-1])
    axes.set(xlabel=titles[0], ylabel=titles[1], ylim=(len(names) - 1, 0))
    axes.grid(visible=False)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)


def plot_reliability(
    name: str,
    title: str,
    bins: Sequence[ReliabilityBin],
    words: Words,
    *,
    color: str,
    caption: str = "",
) -> Plot:
    """Return how often answers are right by their confidence; some bin must have items."""
    alt = "; ".join(
        words.label(
            "bin",
            confidence=format_share(one.confidence),
            accuracy=format_share(one.accuracy),
            n=one.num_items,
        )
        for one in bins
        if one.num_items
    )
    titles = words.labels("confidence", "share_right")
    return Plot(
        name=name,
        title=title,
        alt=f"{title}: {alt}",
        draw=partial(_draw_reliability, bins, color, titles),
        size=(3.8, 3.3),
        caption=caption,
    )


def _draw_reliability(
    bins: Sequence[ReliabilityBin], color: str, titles: Sequence[str], axes: Axes
) -> None:
    """Draw accuracy by confidence, with the counts as bars in the lowest fifth."""
    filled = [part for part in bins if part.num_items]
    start = bins[0].low
    axes.plot([start, 1], [start, 1], color=MUTED, lw=1, ls=(0, (4, 3)), zorder=1)
    look = {"color": color, "lw": 1.6, "marker": "o", "ms": 5, "zorder": 3}
    accuracies = [part.accuracy or 0.0 for part in filled]
    axes.plot([part.confidence or 0.0 for part in filled], accuracies, **look)
    below = axes.inset_axes((0, -0.27, 1, 0.2), sharex=axes)
    widths = [part.high - part.low for part in bins]
    counts = [part.num_items for part in bins]
    below.bar([part.low for part in bins], counts, widths, align="edge", color=color)
    for patch in below.patches:
        patch.set(alpha=0.45, edgecolor="white", linewidth=0.8)
    below.set(yticks=[0, max(counts)], ylabel="n", xlabel=titles[0], xlim=(start - 0.01, 1.01))
    below.grid(visible=False)
    axes.tick_params(labelbottom=False)
    below.xaxis.set_major_formatter(make_percent_axis())
    axes.yaxis.set_major_formatter(make_percent_axis())
    axes.set(ylabel=titles[1], ylim=(-0.03, 1.03))
