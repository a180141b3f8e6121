"""The plots of a report: small single panels that stay readable on a phone.

Each is a title, a caption in words, a text for those who do not see it, and a function that
draws it. Nothing here reads files or computes a metric.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from groupwise.evaluation.report.canvas import (
    FAINT,
    INK,
    MUTED,
    Axes,
    can_draw,
    color_policy,
    make_percent_axis,
)
from groupwise.evaluation.report.content import Headline, PolicyDetail, Report
from groupwise.evaluation.report.curves import list_training_plots
from groupwise.evaluation.report.numbers import format_score, format_share

_TRAINING_SIZE = (3.8, 3.1)
_SIGNAL_SIZE = (3.8, 2.3)
Section = Literal["headline", "training", "signals", "confusion", "reliability"]


@dataclass(frozen=True, slots=True)
class Plot:
    """One panel.

    Attributes:
        name: file name without its ending.
        section: which part of the report shows it.
        title: what it shows, in a few words.
        caption: how to read it; may be empty.
        alt: its content in words.
        draw: draws it on empty axes.
        size: width and height in inches.
    """

    name: str
    section: Section
    title: str
    caption: str
    alt: str
    draw: Callable[[Axes], None]
    size: tuple[float, float]


def list_plots(report: Report) -> list[Plot]:
    """Return every plot that the report has the numbers for."""
    return [
        *([plot_forest(report.headlines[0])] if report.headlines else []),
        *(
            Plot(
                curve.name,
                curve.section,
                curve.title,
                curve.caption,
                curve.alt,
                curve.draw,
                _TRAINING_SIZE if curve.section == "training" else _SIGNAL_SIZE,
            )
            for curve in list_training_plots(report.logs)
        ),
        *(plot_confusion(detail) for detail in report.details),
        *plot_reliabilities(report.details),
    ]


def name_file(kind: str, name: str) -> str:
    """Return a file name without its ending that a Markdown link can hold."""
    return re.sub(r"[^\w.-]+", "-", f"{kind}-{name}")


def plot_forest(headline: Headline) -> Plot:
    """Return the accuracies of a split with their intervals."""
    rows = headline.rows
    alt = "; ".join(f"{row.title} {format_share(row.accuracy.value)}" for row in rows)
    return Plot(
        name=name_file("accuracy", headline.split),
        section="headline",
        title=f"Accuracy on {headline.split}",
        caption="Thick: Wilson interval (95 %). Thin: interval from drawing whole groups.",
        alt=f"Accuracies with intervals: {alt}.",
        draw=partial(_draw_forest, headline),
        size=(5.4, 0.7 + 0.36 * len(rows)),
    )


def _draw_forest(headline: Headline, axes: Axes) -> None:
    for place, row in enumerate(headline.rows):
        color, metric = color_policy(row.policy), row.accuracy
        if row.clustered is not None:
            axes.plot([row.clustered.low, row.clustered.high], [place] * 2, color=color, lw=1.3)
            for end in (row.clustered.low, row.clustered.high):
                axes.plot([end] * 2, [place - 0.13, place + 0.13], color=color, lw=1.3)
        axes.plot(
            [metric.low, metric.high],
            [place] * 2,
            color=color,
            lw=7,
            alpha=0.38,
            solid_capstyle="butt",
        )
        axes.plot(
            [metric.value], [place], "o", color=color, ms=7, mec="white", mew=1, clip_on=False
        )
        axes.text(
            1.015,
            place,
            format_share(metric.value),
            transform=axes.get_yaxis_transform(),
            va="center",
            color=INK,
            fontweight="bold" if row.is_best else "normal",
        )
    lowest = min(min(r.accuracy.low, r.clustered.low if r.clustered else 1) for r in headline.rows)
    axes.set_xlim(max(0.0, np.floor(lowest * 10) / 10 - 0.02), 1.005)
    axes.set_ylim(len(headline.rows) - 0.45, -0.55)
    axes.set_yticks(range(len(headline.rows)), [row.title for row in headline.rows])
    axes.tick_params(axis="y", length=0, labelsize=10)
    axes.xaxis.set_major_formatter(make_percent_axis())
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)


def plot_confusion(detail: PolicyDetail) -> Plot:
    """Return how often each truth got each answer."""
    table = detail.confusion
    words = "; ".join(
        f"{truth}: " + ", ".join(f"{count} {name}" for name, count in zip(names, row, strict=True))
        for truth, row in zip(table.labels, table.counts, strict=True)
        for names in [(*table.labels, "invalid")]
    )
    is_plain = all(map(can_draw, table.labels))
    key = "" if is_plain else "; ".join(f"{_mark(i)} = {x}" for i, x in enumerate(table.labels))
    return Plot(
        name=name_file("confusion", detail.policy),
        section="confusion",
        title=detail.title,
        caption=key,
        alt=f"Truth and answers of {detail.title}: {words}.",
        draw=partial(_draw_confusion, detail, is_plain),
        size=(3.6, 1.3 + 0.62 * len(table.labels)),
    )


def _mark(index: int) -> str:
    return f"L{index + 1}"


def _draw_confusion(detail: PolicyDetail, is_plain: bool, axes: Axes) -> None:
    table = detail.confusion
    counts = np.asarray(table.counts, dtype=np.float64)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    axes.pcolormesh(shares, cmap="Blues", vmin=0, vmax=1.15, edgecolors="white", linewidth=2)
    for row, column in np.ndindex(counts.shape):
        dark = shares[row, column] > 0.55
        place = (column + 0.5, row + 0.5)
        color = "white" if dark else (INK if counts[row, column] else FAINT)
        text = f"{int(counts[row, column])}"
        axes.annotate(text, place, ha="center", va="bottom", color=color, fontsize=12)
        share = format_share(shares[row, column]) if counts[row, column] else ""
        axes.annotate(share, place, (0, -3), textcoords="offset points", ha="center", va="top")
        axes.texts[-1].set(color=color, fontsize=8)
    names = table.labels if is_plain else [_mark(i) for i in range(len(table.labels))]
    axes.set_xticks(np.arange(len(names) + 1) + 0.5, [*names, "invalid"])
    axes.set_yticks(np.arange(len(names)) + 0.5, names)
    axes.set(xlabel="answer", ylabel="truth", ylim=(len(names), 0))
    axes.grid(visible=False)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)


def plot_reliabilities(details: Sequence[PolicyDetail]) -> Iterator[Plot]:
    """Yield the reliability of each that has probabilities."""
    for detail in details:
        if not detail.has_probabilities:
            continue
        scores = ", ".join(
            f"{name} {format_score(detail.measures[key].value)}"
            for key, name in (("brier", "Brier score"), ("ece", "calibration error"))
            if key in detail.measures
        )
        filled = [part for part in detail.bins if part.num_items]
        alt = "; ".join(
            f"confidence {format_share(part.confidence)}: right {format_share(part.accuracy)}, "
            f"n {part.num_items}"
            for part in filled
        )
        yield Plot(
            name=name_file("reliability", detail.policy),
            section="reliability",
            title=detail.title,
            caption=scores[:1].upper() + scores[1:],
            alt=f"Reliability of {detail.title}: {alt}.",
            draw=partial(_draw_reliability, detail),
            size=(3.8, 3.3),
        )


def _draw_reliability(detail: PolicyDetail, axes: Axes) -> None:
    """Draw accuracy by confidence, with the counts as bars in the lowest fifth."""
    filled = [part for part in detail.bins if part.num_items]
    start = detail.bins[0].low
    color = color_policy(detail.policy)
    axes.plot([start, 1], [start, 1], color=MUTED, lw=1, ls=(0, (4, 3)), zorder=1)
    axes.plot(
        [part.confidence or 0.0 for part in filled],
        [part.accuracy or 0.0 for part in filled],
        color=color,
        lw=1.6,
        marker="o",
        ms=5,
        zorder=3,
    )
    bars = axes.inset_axes((0, -0.27, 1, 0.2), sharex=axes)
    widths = [part.high - part.low for part in detail.bins]
    counts = [part.num_items for part in detail.bins]
    bars.bar([part.low for part in detail.bins], counts, widths, align="edge", color=color)
    for patch in bars.patches:
        patch.set(alpha=0.45, edgecolor="white", linewidth=0.8)
    bars.set(yticks=[0, max(counts)], ylabel="n", xlabel="confidence", xlim=(start - 0.01, 1.01))
    bars.grid(visible=False)
    axes.tick_params(labelbottom=False)
    bars.xaxis.set_major_formatter(make_percent_axis())
    axes.yaxis.set_major_formatter(make_percent_axis())
    axes.set(ylabel="share that is right", ylim=(-0.03, 1.03))
