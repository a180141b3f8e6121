"""Tables of metrics, a column per measure, and of how often each truth got each answer."""

from collections.abc import Callable, Iterable, Mapping

from groupwise.evaluation.label_metrics import Confusion
from groupwise.evaluation.metrics import Metric
from groupwise.evaluation.page.blocks import DASH, Cell, Table
from groupwise.evaluation.page.numbers import (
    format_count,
    format_interval,
    format_share,
    format_value,
)
from groupwise.evaluation.page.shading import Scale
from groupwise.evaluation.page.words import Words

_MAX_HEAD = 12
Row = tuple[str | Cell, Mapping[str, Metric]]


def show_metric(metric: Metric | None) -> str:
    """Return a number with its 95 % interval as its note; a dash where there is none."""
    return DASH if metric is None else f"{format_value(metric)}\n{format_interval(metric)}"


def show_sized(metric: Metric | None) -> str:
    """Return a number with its interval and its size as its note."""
    shown = show_metric(metric)
    return shown if metric is None else f"{shown}, n = {format_count(metric.n)}"


def tabulate_metrics(
    rows: Iterable[Row],
    columns: Mapping[str, str],
    *,
    head: str,
    show: Callable[[Metric | None], str] = show_metric,
    count: str = "",
    title: str = "",
) -> Table:
    """Return a row of measures per policy or subset.

    Args:
        rows: what each row is, with its metrics by measure.
        columns: the heading of each measure that has a column.
        head: of the first column.
        show: how a metric looks.
        count: the measure whose number of items is the last column, where a row has none of it that
            of the first measure that it has; empty: no such column.
        title: of the table.
    """
    shown = [
        (
            name,
            *(show(metrics.get(measure)) for measure in columns),
            *([_count(metrics, (count, *columns))] if count else []),
        )
        for name, metrics in rows
    ]
    heads = (head, *columns.values(), *(["n"] if count else []))
    return Table(title, heads, tuple(shown), kind="headline")


def _count(metrics: Mapping[str, Metric], measures: Iterable[str]) -> str:
    known = [metrics[name] for name in measures if name in metrics]
    return format_count(known[0].n) if known else DASH


def tabulate_confusion(title: str, found: Confusion, words: Words) -> Table:
    """Return how often each truth got each answer; long labels have numbers for their columns."""
    labels = found.labels
    heads = labels
    if any(len(label) > _MAX_HEAD for label in labels):
        heads = tuple(str(place) for place in range(1, len(labels) + 1))
        labels = tuple(f"{place} · {one}" for place, one in zip(heads, labels, strict=True))
    corner = f"{words.label('truth')} \u2193 {words.label('answer')} \u2192"
    rows = tuple(
        (Cell(label), *(_show_count(count, sum(counts)) for count in counts))
        for label, counts in zip(labels, found.counts, strict=True)
    )
    return Table(title, (corner, *heads, words.label("invalid_answer")), rows, kind="heat")


def _show_count(count: int, total: int) -> Cell:
    share = count / total if count else 0.0
    style = Scale(0.0, 1.0).shade_value(share)
    return Cell(format_count(count), format_share(share) if count else "", style=style)


def tell_calibration(found: Mapping[str, Metric], words: Words) -> str:
    """Return Brier score and calibration error in words, as far as they were measured."""
    names = (name for name in ("brier", "ece") if name in found)
    return words.join(f"{words.label(name)} {format_value(found[name])}" for name in names)
