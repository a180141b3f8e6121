"""The tables of results, settings, data, epochs and discordant items.

Numbers are put into text here and nowhere after; nothing is computed.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import compress

from groupwise.evaluation.comparison.content import Comparison, DiscordantList, Versus
from groupwise.evaluation.comparison.material import EpochRow, GridCell, SideRow
from groupwise.evaluation.page import DASH, Cell, Table, Words, numbers
from groupwise.evaluation.paired import DiscordantItem
from groupwise.evaluation.predictions import Measure

NOT_RUN = "?"


def bound_cell(cell: GridCell) -> str:
    """Return the interval of a cell; empty where there are no items."""
    if cell.low is None or cell.high is None:
        return ""
    return numbers.format_share_interval(cell.low, cell.high)


def show_cell(cell: GridCell, words: Words) -> Cell:
    """Return the value of a cell, ``?`` with its state, or a dash where it cannot have one."""
    if cell.value is None:
        note = "" if cell.state == "waiting" else words.title("states", cell.state)
        return Cell(NOT_RUN if cell.is_missing else DASH, note=note, hint=cell.error)
    return Cell(format_values(cell.value, [cell]), order=cell.value)


def format_values(value: float, cells: Sequence[GridCell]) -> str:
    """Return a share of cells; one that was only reported keeps two decimals, as it was typed."""
    is_reported = all(cell.low is None for cell in cells)
    return numbers.format_share(value, decimals=2 if is_reported else 1)


def show_number(number: int | None) -> Cell:
    """Return a count, a dash where there is none."""
    return Cell(DASH if number is None else numbers.format_count(number), order=number)


def tabulate_results(comparison: Comparison, words: Words, colors: Sequence[str]) -> Table:
    """Return the headline table: a line per system."""
    is_grid = bool(comparison.axes)
    names = ("mean", "cells", "lowest", "highest") if is_grid else ("value", "interval")
    heads = ("system", *names, "invalid", "n_items", "clusters", "digest")
    fill = _fill_grid if is_grid else _fill_single
    rows = [
        (_show_name(comparison, words, name), *fill(comparison, words, name))
        for name in comparison.names
    ]
    head = words.labels(*heads)
    return Table("", head, tuple(rows), kind="headline", marks=tuple(colors))


def _show_name(comparison: Comparison, words: Words, name: str) -> Cell:
    policy = next(one.policy for one in comparison.systems if one.name == name)
    is_best = comparison.recommendation.system == name
    note = "" if name.endswith(f":{policy}") else policy
    return Cell(words.title_system(name), note=note, is_strong=is_best)


def _fill_single(comparison: Comparison, words: Words, name: str) -> Iterator[Cell]:
    (cell,) = comparison.cells_of(name)
    yield show_cell(cell, words)
    yield Cell(bound_cell(cell) or DASH, order=cell.low)
    yield from _describe_cells([cell])


def _fill_grid(comparison: Comparison, words: Words, name: str) -> Iterator[Cell]:
    cells = comparison.cells_of(name)
    known = [cell for cell in cells if cell.value is not None]
    mean = comparison.mean_of(name)
    none = NOT_RUN if any(cell.is_missing for cell in cells) else DASH
    yield Cell(none if mean is None else format_values(mean, known), order=mean)
    yield Cell(words.label("of", part=len(known), all=len(cells)), order=len(known))
    for choose in (min, max):
        found = choose(known, key=lambda cell: cell.value or 0.0, default=None)
        shown = Cell(none) if found is None else show_cell(found, words)
        yield replace(shown, note=words.place(found.coordinates) if found else "")
    yield from _describe_cells(known)


def _describe_cells(cells: Sequence[GridCell]) -> Iterator[Cell]:
    """Yield the share of invalid answers (its mean), numbers of items and clusters, and digests."""
    rates = [cell.invalid_rate for cell in cells if cell.invalid_rate is not None]
    mean = sum(rates) / len(rates) if rates else None
    yield Cell(numbers.format_share(mean), order=mean)
    yield _span([cell.n for cell in cells])
    yield _span([cell.num_clusters for cell in cells])
    yield _show_digests(cells)


def _span(values: Iterable[int | None]) -> Cell:
    """Return one number, or the lowest and the highest."""
    known = sorted({value for value in values if value is not None})
    ends = dict.fromkeys([known[0], known[-1]]) if known else {}
    text = DASH.join(map(numbers.format_count, ends)) or DASH
    return Cell(text, order=known[0] if known else None)


def _show_digests(cells: Iterable[GridCell]) -> Cell:
    digests = sorted({cell.digest for cell in cells if cell.digest})
    if not digests:
        return Cell(DASH)
    more = f" +{len(digests) - 1}" if len(digests) > 1 else ""
    return Cell(digests[0][:8] + more, hint=" ".join(digests), is_code=True)


def tabulate_sides(comparison: Comparison, words: Words, rows: Sequence[SideRow]) -> Table:
    """Return settings or counts side by side, a column per system."""
    titles = [words.title_system(name) for name in comparison.names]
    has_kinds = any(row.kind for row in rows)
    heads = (words.label("setting"), *titles, *([words.label("why")] if has_kinds else []))
    return Table(
        "",
        tuple(heads),
        tuple(_show_side(row, words, has_kinds) for row in rows),
        kind="wrap sides" if has_kinds else "wrap",
    )


def _show_side(row: SideRow, words: Words, has_kinds: bool) -> tuple[Cell, ...]:
    missing = words.label("not_recorded")
    values = [Cell(missing if value is None else value) for value in row.values]
    title = Cell(
        row.key,
        note=words.title("aspects", row.aspect),
        tag=words.label(f"kind_{row.kind}") if row.kind else "",
        tag_kind=row.kind or "",
        is_code=True,
    )
    if not has_kinds:
        return (title, *values)
    why = words.explain(row.reason, row.words) if row.reason else ""
    return (title, *values, Cell(why))


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
    heads = [
        words.label("system"),
        words.label("epoch"),
        *(words.title("series", key) for key in keys),
    ]
    return Table(
        step,
        tuple(heads + ([words.label("runs")] if has_many else [])),
        tuple(_show_epoch(row, keys, words, has_many) for row in rows),
        num_heads=2,
    )


def _show_epoch(
    row: EpochRow, keys: Sequence[str], words: Words, has_many: bool
) -> tuple[Cell, ...]:
    values = [row.values.get(key) for key in keys]
    shown = [Cell(DASH if value is None else words.plain(value), order=value) for value in values]
    epoch = Cell(str(row.epoch), order=row.epoch)
    ends = (show_number(row.num_runs),) if has_many else ()
    return (Cell(words.title_system(row.system)), epoch, *shown, *ends)


def tabulate_discordant(comparison: Comparison, words: Words) -> tuple[tuple[str, Table], ...]:
    """Return a sentence and a table of items per pair that differs in some."""
    return tuple(
        (
            _tell_discordant(pair, pair.discordant, words),
            _list_items(pair, pair.discordant, comparison.measure, words),
        )
        for pair in comparison.versus
        if pair.discordant is not None and pair.discordant.shown
    )


def _tell_discordant(pair: Versus, found: DiscordantList, words: Words) -> str:
    place = words.place(found.coordinates)
    return words.label(
        "discordant_lead",
        pair=words.title_pair(pair.first, pair.second),
        place=words.label("in_brackets", text=place) if place else "",
        first=numbers.format_count(found.num_first_better),
        second=numbers.format_count(found.num_second_better),
        all=numbers.format_count(found.num_items),
        shown=len(found.shown),
    )


def _list_items(pair: Versus, found: DiscordantList, measure: Measure, words: Words) -> Table:
    answers = [
        words.label("answer_of", name=words.title_system(name))
        for name in (pair.first, pair.second)
    ]
    # Open answers have no truth to show.
    kept = (True, any(one.label for one in found.shown), True, True)
    heads = tuple(compress((*words.labels("item", "truth"), *answers), kept))
    rows = tuple(tuple(compress(_show_item(one, measure, words), kept)) for one in found.shown)
    return Table("", heads, rows, kind="wrap items")


def _show_item(one: DiscordantItem, measure: Measure, words: Words) -> tuple[Cell, ...]:
    empty = words.label("no_answer")
    return (
        Cell(one.task or one.id[:8], note=one.cluster, hint=one.id),
        Cell(one.label or ""),
        Cell(one.answer_a or empty, note=_mark(one.value_a, measure)),
        Cell(one.answer_b or empty, note=_mark(one.value_b, measure)),
    )


def _mark(value: float, measure: Measure) -> str:
    """Return a tick for the best value, a cross for the worst, or the score between them."""
    if value not in (0, 1):
        return numbers.format_score(value)
    return "✓" if (value == 1) == measure.is_higher_better else "✗"
