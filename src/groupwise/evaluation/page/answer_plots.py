"""The plot of how far the confidences of answers can be trusted."""

from collections.abc import Sequence
from functools import partial

from groupwise.evaluation.label_metrics import ReliabilityBin
from groupwise.evaluation.page.blocks import Plot
from groupwise.evaluation.page.canvas import MUTED, Axes, make_percent_axis
from groupwise.evaluation.page.numbers import format_share
from groupwise.evaluation.page.words import Words


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
