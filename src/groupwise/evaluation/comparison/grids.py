"""The tables of a grid: values, differences, their summary and their means by axis.

Heat maps are tables whose cells are coloured; nothing is computed here but colours.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from groupwise.evaluation.comparison.content import AxisMean, Comparison, Gap, Versus
from groupwise.evaluation.comparison.material import Coordinates, GridCell
from groupwise.evaluation.comparison.tables import (
    NOT_RUN,
    bound_cell,
    format_values,
    show_cell,
    show_number,
)
from groupwise.evaluation.page import DASH, Cell, Scale, Table, Words, numbers
from groupwise.evaluation.predictions import Measure
from groupwise.evaluation.sameness import has_epochs

OTHER_ITEMS = "≠"
_NO_GAP = {"missing": NOT_RUN, "inapplicable": DASH, "other_items": OTHER_ITEMS}
MARK = "\u00a0★"


def tabulate_values(comparison: Comparison, words: Words) -> tuple[Table, ...]:
    """Return a heat map of values per system, all on one scale."""
    scale = _span([cell.value for cell in comparison.cells], comparison.measure)
    return tuple(
        _tabulate_grid(
            comparison,
            words,
            words.title_system(name),
            {c.coordinates: _shade_cell(c, scale, words) for c in comparison.cells_of(name)},
        )
        for name in comparison.names
    )


def _span(values: Iterable[float | None], measure: Measure) -> Scale:
    known = [value for value in values if value is not None]
    return Scale(min(known, default=0.0), max(known, default=0.0), measure.sign)


def _shade_cell(cell: GridCell, scale: Scale, words: Words) -> Cell:
    if cell.value is None:
        return show_cell(cell, words)
    hint = "" if cell.n is None else f"n = {numbers.format_count(cell.n)}"
    return Cell(
        format_values(cell.value, [cell]),
        note=bound_cell(cell),
        order=cell.value,
        style=scale.shade_value(cell.value),
        hint=hint,
    )


def tabulate_differences(comparison: Comparison, words: Words) -> tuple[Table, ...]:
    """Return a heat map of differences per pair, all on one scale."""
    differences = [g.difference for one in comparison.versus for g in one.gaps]
    scale = _span(differences, comparison.measure)
    return tuple(
        _tabulate_grid(
            comparison,
            words,
            words.title_pair(pair.first, pair.second),
            {g.coordinates: _shade_gap(g, scale, words, comparison.is_fair) for g in pair.gaps},
        )
        for pair in comparison.versus
    )


def _shade_gap(gap: Gap, scale: Scale, words: Words, is_fair: bool) -> Cell:
    if gap.difference is None:
        return Cell(_NO_GAP[gap.why_none])
    test = gap.test
    return replace(
        _show_difference(gap, is_fair),
        note="" if test is None else words.interval(test.low, test.high),
        style=scale.shade_difference(gap.difference),
        hint="" if test is None else numbers.format_p_value(test.p_value_holm),
    )


def _tabulate_grid(
    comparison: Comparison, words: Words, title: str, shown: dict[Coordinates, Cell]
) -> Table:
    """Return a grid with the last axis as columns; without axes a single cell."""
    if not comparison.axes:
        return Table(title, (words.label("value"),), ((shown[()],),), 0, "heat")
    *outer, last = comparison.axes
    column_title = words.title_axis(last.key)
    heads = (
        *(words.title_axis(axis.key) for axis in outer),
        *(f"{column_title} {value}" for value in last.values),
    )
    starts = dict.fromkeys(place[:-1] for place in shown)
    rows = [
        (*map(Cell, start), *(shown[*start, value] for value in last.values)) for start in starts
    ]
    return Table(title, heads, tuple(rows), len(outer), "heat")


def tabulate_summary(comparison: Comparison, words: Words) -> Table:
    """Return a line per pair: mean difference, extremes, cells up and down, what survives."""
    if not comparison.axes:
        return _tabulate_tests(comparison, words)
    names = ("pair", "mean_difference", "best_gain", "worst_loss", "better_worse_equal", "cells")
    heads = (*names, "survive")
    rows = tuple(tuple(_summarize(pair, words)) for pair in comparison.versus)
    return Table("", words.labels(*heads), rows)


def _summarize(pair: Versus, words: Words) -> Iterator[Cell]:
    yield Cell(words.title_pair(pair.first, pair.second))
    yield _show_points(pair.mean)
    for place in (pair.best, pair.worst):
        gap = pair.find(place)
        yield _show_points(gap.difference if gap else None, words.place(place) if place else "")
    counts = (pair.num_better, pair.num_worse, pair.num_equal)
    yield Cell(" : ".join(map(str, counts)), order=pair.num_better - pair.num_worse)
    part = words.label("of", part=pair.num_compared, all=len(pair.gaps))
    yield Cell(part, order=pair.num_compared)
    clear = pair.num_clear_better + pair.num_clear_worse
    text = words.label("of", part=clear, all=pair.num_tested)
    yield Cell(text if pair.num_tested else words.label("untested"), order=clear)


def _show_points(value: float | None, note: str = "") -> Cell:
    return Cell(
        NOT_RUN if value is None else numbers.format_points_with_arrow(value), note, order=value
    )


def _tabulate_tests(comparison: Comparison, words: Words) -> Table:
    names = ("pair", "mean_difference", "interval", "p_holm", "effect", "won_lost", "needed")
    rows = [
        (
            Cell(words.title_pair(pair.first, pair.second)),
            *_show_test(pair.gaps[0], words, comparison),
        )
        for pair in comparison.versus
    ]
    return Table("", words.labels(*names), tuple(rows))


def _show_test(gap: Gap, words: Words, comparison: Comparison) -> Iterator[Cell]:
    test = gap.test
    if test is None:
        yield _show_points(gap.difference)
        yield Cell(words.label("untested"))
        yield from [Cell(DASH)] * 4
        return
    yield _show_difference(gap, comparison.is_fair)
    yield Cell(words.interval(test.low, test.high), order=test.low)
    yield Cell(numbers.format_p_cell(test.p_value_holm), order=test.p_value_holm)
    effect = test.effect_size
    yield Cell(DASH if effect is None else _sign(effect), order=effect)
    wins, losses = test.count_wins(comparison.measure)
    yield Cell(f"{wins} : {losses}", order=wins - losses)
    yield show_number(test.num_items_needed)


def _show_difference(gap: Gap, is_fair: bool) -> Cell:
    """Return a difference, marked if it is clear and the comparison fair."""
    is_marked = gap.is_clear and is_fair
    text = numbers.format_points_with_arrow(gap.difference or 0.0) + (MARK if is_marked else "")
    return Cell(text, order=gap.difference, is_strong=is_marked)


def _sign(value: float) -> str:
    """Return a signed number with two digits, as differences are written."""
    rounded = round(value, 2)
    sign = "+" if rounded > 0 else "\u2212" if rounded < 0 else "\u00b1"
    return f"{sign}{abs(rounded):.2f}"


def tabulate_axes(comparison: Comparison, words: Words) -> tuple[Table, ...]:
    """Return a table per axis: the mean difference of every pair by the axis' values."""
    return tuple(_tabulate_axis(comparison, words, i) for i in range(len(comparison.axes)))


def _tabulate_axis(comparison: Comparison, words: Words, index: int) -> Table:
    axis = comparison.axes[index]
    pairs, trend = comparison.versus, words.label("trend")
    titles = [words.title_pair(pair.first, pair.second) for pair in pairs]
    is_beside = not has_epochs(axis.key) and any(has_epochs(one.key) for one in comparison.axes)
    heads = [words.title_axis(axis.key), *titles]
    heads += [f"{trend}\n{title}" if titles[1:] else trend for title in titles if is_beside]
    rows: list[tuple[Cell, ...]] = []
    for number, value in enumerate(axis.values):
        means = [pair.by_axis[index].rows[number] for pair in pairs]
        cells = [_show_points(one.mean, _tell_share(one, words)) for one in means]
        cells += [_show_points(one.trend) for one in means if is_beside]
        rows.append((Cell(value, order=float(number)), *cells))
    if has_epochs(axis.key):
        changes = [_show_points(pair.by_axis[index].trend) for pair in pairs]
        rows.append((Cell(trend, order=float(len(rows))), *changes))
    return Table(axis.key, tuple(heads), tuple(rows))


def _tell_share(one: AxisMean, words: Words) -> str:
    share = words.label("of", part=one.num_compared, all=one.num_cells)
    return f"{words.label('over')} {share}"
