"""Every table of the report as rows of shown cells, the same for HTML and Markdown.

Numbers are put into text here and nowhere after; nothing is computed but colours.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from groupwise.evaluation.comparison.content import (
    AxisMean,
    Cell,
    Comparison,
    Coordinates,
    Discordant,
    DiscordantList,
    EpochRow,
    Gap,
    SideRow,
    Versus,
)
from groupwise.evaluation.comparison.shading import Scale
from groupwise.evaluation.comparison.words import Words
from groupwise.evaluation.report import numbers

NOT_RUN = "?"
OTHER_ITEMS = "≠"
_DASH = "\u2013"


@dataclass(frozen=True, slots=True)
class Shown:
    """One cell of a table.

    Attributes:
        text: what it says.
        note: a second, smaller line.
        order: what the column is sorted by; the text if None.
        style: colours of a heat map.
        hint: more for those who point at it.
        tag: a coloured word; its colour is the class ``tag_kind`` of the style sheet.
        tag_kind: see there.
        is_strong: stands out.
        is_code: a digest or a key.
    """

    text: str
    note: str = ""
    order: float | None = None
    style: str = ""
    hint: str = ""
    tag: str = ""
    tag_kind: str = ""
    is_strong: bool = False
    is_code: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table; its first ``num_heads`` columns name the row and are aligned left.

    ``kind`` is a class of the style sheet (``heat``, ``wrap``), ``marks`` a colour by row.
    """

    heads: tuple[str, ...]
    rows: tuple[tuple[Shown, ...], ...]
    title: str = ""
    num_heads: int = 1
    kind: str = ""
    marks: tuple[str, ...] = ()


def tabulate_results(comparison: Comparison, words: Words, colors: Sequence[str]) -> Table:
    """Return the headline table: a line per contender."""
    is_grid = bool(comparison.axes)
    names = ("mean", "cells", "lowest", "highest") if is_grid else ("value", "interval")
    heads = ("contender", *names, "n_items", "groups", "digest")
    fill = _fill_grid if is_grid else _fill_single
    rows = [
        (_show_name(comparison, words, name), *fill(comparison, words, name))
        for name in comparison.names
    ]
    return Table(tuple(map(words.label, heads)), tuple(rows), kind="headline", marks=tuple(colors))


def _show_name(comparison: Comparison, words: Words, name: str) -> Shown:
    policy = next(one.policy for one in comparison.contenders if one.name == name)
    is_best = comparison.recommendation.contender == name
    note = "" if name.endswith(f":{policy}") else policy
    return Shown(words.title_contender(name), note=note, is_strong=is_best)


def _fill_single(comparison: Comparison, words: Words, name: str) -> Iterator[Shown]:
    (cell,) = comparison.cells_of(name)
    yield _show_value(cell, words)
    yield Shown(_bound(cell) or _DASH, order=cell.low)
    yield _count(cell.n)
    yield _count(cell.num_groups)
    yield _show_digests([cell])


def _fill_grid(comparison: Comparison, words: Words, name: str) -> Iterator[Shown]:
    cells = comparison.cells_of(name)
    known = [cell for cell in cells if cell.value is not None]
    mean = comparison.mean_of(name)
    yield Shown(NOT_RUN if mean is None else numbers.format_share(mean), order=mean)
    yield Shown(words.label("of", part=len(known), all=len(cells)), order=len(known))
    for choose in (min, max):
        found = choose(known, key=lambda cell: cell.value or 0.0, default=None)
        place = words.place(found.coordinates) if found else ""
        yield Shown(_share(found), note=place, order=found.value if found else None)
    yield _span([cell.n for cell in known])
    yield _span([cell.num_groups for cell in known])
    yield _show_digests(known)


def _share(cell: Cell | None) -> str:
    return NOT_RUN if cell is None or cell.value is None else numbers.format_share(cell.value)


def _bound(cell: Cell) -> str:
    if cell.low is None or cell.high is None:
        return ""
    return numbers.format_share_interval(cell.low, cell.high)


def _show_value(cell: Cell, words: Words) -> Shown:
    if cell.value is None:
        note = "" if cell.state == "waiting" else words.title_state(cell.state)
        return Shown(NOT_RUN, note=note, hint=cell.error)
    return Shown(numbers.format_share(cell.value), order=cell.value)


def _count(number: int | None) -> Shown:
    return Shown(_DASH if number is None else numbers.format_count(number), order=number)


def _span(values: Iterable[int | None]) -> Shown:
    """Return one number, or the lowest and the highest."""
    known = sorted({value for value in values if value is not None})
    ends = dict.fromkeys([known[0], known[-1]]) if known else {}
    text = _DASH.join(map(numbers.format_count, ends)) or _DASH
    return Shown(text, order=known[0] if known else None)


def _show_digests(cells: Iterable[Cell]) -> Shown:
    digests = sorted({cell.digest for cell in cells if cell.digest})
    if not digests:
        return Shown(_DASH)
    more = f" +{len(digests) - 1}" if len(digests) > 1 else ""
    return Shown(digests[0][:8] + more, hint=" ".join(digests), is_code=True)


def tabulate_sides(comparison: Comparison, words: Words, rows: Sequence[SideRow]) -> Table:
    """Return settings or counts side by side, a column per contender."""
    titles = [words.title_contender(name) for name in comparison.names]
    has_kinds = any(row.kind for row in rows)
    heads = (words.label("setting"), *titles, *([words.label("why")] if has_kinds else []))
    return Table(
        tuple(heads),
        tuple(_show_side(row, words, has_kinds) for row in rows),
        kind="wrap sides" if has_kinds else "wrap",
    )


def _show_side(row: SideRow, words: Words, has_kinds: bool) -> tuple[Shown, ...]:
    missing = words.label("not_recorded")
    values = [Shown(missing if value is None else value) for value in row.values]
    title = Shown(
        row.key,
        note=words.title_aspect(row.aspect).rstrip(":："),
        tag=words.label(f"kind_{row.kind}") if row.kind else "",
        tag_kind=row.kind or "",
        is_code=True,
    )
    if not has_kinds:
        return (title, *values)
    why = words.explain(row.reason, row.words) if row.reason else ""
    return (title, *values, Shown(why))


def tabulate_epochs(comparison: Comparison, words: Words) -> tuple[Table, ...]:
    """Return the last logged values of every epoch, a table per training step."""
    names = dict.fromkeys(row.step_name for row in comparison.epochs)
    return tuple(
        _tabulate_step(step, [r for r in comparison.epochs if r.step_name == step], words)
        for step in names
    )


def _tabulate_step(step: str, rows: Sequence[EpochRow], words: Words) -> Table:
    keys = list(dict.fromkeys(key for row in rows for key in row.values))
    has_many = any(row.num_runs > 1 for row in rows)
    heads = [words.label("contender"), words.label("epoch"), *map(words.title_series, keys)]
    return Table(
        tuple(heads + ([words.label("runs")] if has_many else [])),
        tuple(_show_epoch(row, keys, words, has_many) for row in rows),
        title=step,
        num_heads=2,
    )


def _show_epoch(
    row: EpochRow, keys: Sequence[str], words: Words, has_many: bool
) -> tuple[Shown, ...]:
    values = [row.values.get(key) for key in keys]
    shown = [Shown(_DASH if value is None else words.plain(value), order=value) for value in values]
    epoch = Shown(str(row.epoch), order=row.epoch)
    ends = (_count(row.num_runs),) if has_many else ()
    return (Shown(words.title_contender(row.contender)), epoch, *shown, *ends)


def tabulate_values(comparison: Comparison, words: Words) -> tuple[Table, ...]:
    """Return a heat map of values per contender, all on one scale."""
    known = [cell.value for cell in comparison.cells if cell.value is not None]
    scale = Scale(min(known, default=0.0), max(known, default=0.0))
    return tuple(
        _tabulate_grid(
            comparison,
            words,
            words.title_contender(name),
            {c.coordinates: _shade_cell(c, scale, words) for c in comparison.cells_of(name)},
        )
        for name in comparison.names
    )


def _shade_cell(cell: Cell, scale: Scale, words: Words) -> Shown:
    if cell.value is None:
        return _show_value(cell, words)
    hint = "" if cell.n is None else f"n = {numbers.format_count(cell.n)}"
    return Shown(
        numbers.format_share(cell.value),
        note=_bound(cell),
        order=cell.value,
        style=scale.shade_value(cell.value),
        hint=hint,
    )


def tabulate_differences(comparison: Comparison, words: Words) -> tuple[Table, ...]:
    """Return a heat map of differences per pair, all on one scale."""
    known = [g.difference for one in comparison.versus for g in one.gaps]
    values = [value for value in known if value is not None]
    scale = Scale(min(values, default=0.0), max(values, default=0.0))
    return tuple(
        _tabulate_grid(
            comparison,
            words,
            words.title_pair(pair.first, pair.second),
            {g.coordinates: _shade_gap(g, scale, words, comparison.is_fair) for g in pair.gaps},
        )
        for pair in comparison.versus
    )


def _shade_gap(gap: Gap, scale: Scale, words: Words, is_fair: bool) -> Shown:
    if gap.difference is None:
        return Shown(NOT_RUN if gap.why_none == "missing" else OTHER_ITEMS)
    is_marked = gap.is_clear and is_fair
    test = gap.test
    return Shown(
        numbers.format_points(gap.difference) + ("\u00a0★" if is_marked else ""),
        note="" if test is None else words.interval(test.low, test.high),
        order=gap.difference,
        style=scale.shade_difference(gap.difference),
        hint="" if test is None else numbers.format_p_value(test.p_value_holm),
        is_strong=is_marked,
    )


def _tabulate_grid(
    comparison: Comparison, words: Words, title: str, shown: dict[Coordinates, Shown]
) -> Table:
    """Return a grid with the last axis as columns; without axes a single cell."""
    if not comparison.axes:
        return Table((words.label("value"),), ((shown[()],),), title, 0, "heat")
    *outer, last = comparison.axes
    column_title = words.title_axis(last.key)
    heads = (
        *(words.title_axis(axis.key) for axis in outer),
        *(f"{column_title} {value}" for value in last.values),
    )
    starts = dict.fromkeys(place[:-1] for place in shown)
    rows = [
        (*map(Shown, start), *(shown[*start, value] for value in last.values)) for start in starts
    ]
    return Table(heads, tuple(rows), title, len(outer), "heat")


def tabulate_summary(comparison: Comparison, words: Words) -> Table:
    """Return a line per pair: mean difference, extremes, cells up and down, what survives."""
    if not comparison.axes:
        return _tabulate_tests(comparison, words)
    names = ("pair", "mean_difference", "best_gain", "worst_loss", "up_down_equal", "cells")
    heads = (*names, "survive")
    rows = tuple(tuple(_summarize(pair, words)) for pair in comparison.versus)
    return Table(tuple(map(words.label, heads)), rows)


def _summarize(pair: Versus, words: Words) -> Iterator[Shown]:
    yield Shown(words.title_pair(pair.first, pair.second))
    yield _show_points(pair.mean)
    for place in (pair.best, pair.worst):
        gap = pair.find(place)
        yield _show_points(gap.difference if gap else None, words.place(place) if place else "")
    counts = (pair.num_up, pair.num_down, pair.num_equal)
    yield Shown(" : ".join(map(str, counts)), order=pair.num_up - pair.num_down)
    part = words.label("of", part=pair.num_compared, all=len(pair.gaps))
    yield Shown(part, order=pair.num_compared)
    clear = pair.num_clear_up + pair.num_clear_down
    text = words.label("of", part=clear, all=pair.num_tested)
    yield Shown(text if pair.num_tested else words.label("untested"), order=clear)


def _show_points(value: float | None, note: str = "") -> Shown:
    return Shown(NOT_RUN if value is None else numbers.format_points(value), note, order=value)


def _tabulate_tests(comparison: Comparison, words: Words) -> Table:
    names = ("pair", "mean_difference", "interval", "p_holm", "effect", "won_lost", "needed")
    rows = [
        (Shown(words.title_pair(pair.first, pair.second)), *_show_test(pair.gaps[0], words))
        for pair in comparison.versus
    ]
    return Table(tuple(map(words.label, names)), tuple(rows))


def _show_test(gap: Gap, words: Words) -> Iterator[Shown]:
    test = gap.test
    if test is None:
        yield _show_points(gap.difference)
        yield Shown(words.label("untested"))
        yield from [Shown(_DASH)] * 4
        return
    yield _show_points(gap.difference)
    yield Shown(words.interval(test.low, test.high), order=test.low)
    yield Shown(numbers.format_p_cell(test.p_value_holm), order=test.p_value_holm)
    effect = test.effect_size
    yield Shown(_DASH if effect is None else _sign(effect), order=effect)
    yield Shown(f"{test.num_b_only} : {test.num_a_only}", order=test.num_b_only - test.num_a_only)
    yield _count(test.num_items_needed)


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
    pairs = comparison.versus
    heads = (
        words.title_axis(axis.key),
        *(words.title_pair(pair.first, pair.second) for pair in pairs),
    )
    rows: list[tuple[Shown, ...]] = []
    for number, value in enumerate(axis.values):
        means = [pair.by_axis[index].rows[number] for pair in pairs]
        cells = [_show_points(one.mean, _tell_share(one, words)) for one in means]
        rows.append((Shown(value, order=float(number)), *cells))
    return Table(heads, tuple(rows), title=axis.key)


def _tell_share(one: AxisMean, words: Words) -> str:
    share = words.label("of", part=one.num_compared, all=one.num_cells)
    return f"{words.label('over')} {share}"


def tabulate_discordant(comparison: Comparison, words: Words) -> tuple[tuple[str, Table], ...]:
    """Return a sentence and a table of items per pair that differs in some."""
    return tuple(
        (_tell_discordant(pair, pair.discordant, words), _list_items(pair, pair.discordant, words))
        for pair in comparison.versus
        if pair.discordant is not None and pair.discordant.shown
    )


def _tell_discordant(pair: Versus, found: DiscordantList, words: Words) -> str:
    place = words.place(found.coordinates)
    return words.label(
        "discordant_lead",
        pair=words.title_pair(pair.first, pair.second),
        place=f" ({place})" if place else "",
        first=numbers.format_count(found.num_first_better),
        second=numbers.format_count(found.num_second_better),
        all=numbers.format_count(found.num_items),
        shown=len(found.shown),
    )


def _list_items(pair: Versus, found: DiscordantList, words: Words) -> Table:
    answers = [
        words.label("answer_of", name=words.title_contender(name))
        for name in (pair.first, pair.second)
    ]
    heads = (words.label("item"), words.label("truth"), *answers)
    rows = tuple(_show_item(one, words) for one in found.shown)
    return Table(heads, rows, kind="wrap items")


def _show_item(one: Discordant, words: Words) -> tuple[Shown, ...]:
    empty = words.label("no_answer")
    return (
        Shown(one.task or one.example_id[:8], note=one.group, hint=one.example_id),
        Shown(one.label),
        Shown(one.first_answer or empty, note=_mark(one.first_value)),
        Shown(one.second_answer or empty, note=_mark(one.second_value)),
    )


def _mark(value: float) -> str:
    """Return a tick, a cross, or the score between them."""
    return "✓" if value == 1 else "✗" if value == 0 else numbers.format_score(value)
