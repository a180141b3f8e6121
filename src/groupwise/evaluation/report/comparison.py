"""The page of a comparison: of runs, of methods over seeds, of a sweep, of published cells.

Warnings first, then what the numbers say, a recommendation or the reasons for none, tables and
plots; HTML, Markdown and JSON of the same data, in English and Chinese. Nothing is computed here
but means over cells.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import compress
from pathlib import Path
from statistics import fmean
from typing import Any

from pydantic_core import to_jsonable_python

from groupwise.core import write_json
from groupwise.evaluation.compare import Comparison, Gap, Pair
from groupwise.evaluation.methods import MethodDifference
from groupwise.evaluation.paired import PairedComparison
from groupwise.evaluation.report import page as blocks
from groupwise.evaluation.report import phrases as words
from groupwise.evaluation.report import plots
from groupwise.evaluation.report.page import Block, Cell, Table
from groupwise.evaluation.report.phrases import DASH, MINUS, NBSP, Language, Phrases, Statement
from groupwise.evaluation.report.tables import Scale
from groupwise.evaluation.result_table import Coordinates, GridAxis, Result, SideRow

NOT_RUN, OTHER_ITEMS, STAR = "?", "≠", f"{NBSP}★"
MAX_CURVES, MAX_PAIRS = 12, 6
_NO_GAP = {"missing": NOT_RUN, "inapplicable": DASH, "other_items": OTHER_ITEMS}
_NAMED = ("first", "second", "name", "best", "rival", "better")
"""Places of phrases in which a system's name stands."""


def write_comparison(comparison: Comparison, folder: Path, *, language: Language = "en") -> Path:
    """Write ``comparison.html``, ``.md`` with its plots, and ``.json``; return that of the HTML."""
    html, _ = blocks.write_page(lay_out_comparison(comparison, language), folder, name="comparison")
    # Each run has its items and answers.
    rows = tuple(replace(one, items=None, answers={}) for one in comparison.table.results)
    found = replace(comparison, table=replace(comparison.table, results=rows))
    told = {**to_jsonable_python(found), "findings": to_jsonable_python([*list_findings(found)])}
    write_json(folder / "comparison.json", told)
    return html


def tell_comparison(comparison: Comparison, *, language: Language = "en") -> Iterator[str]:
    """Yield the lines a terminal shows: warnings, findings, the recommendation or reasons."""
    page, say = lay_out_comparison(comparison, language), Phrases(language).say
    told = [f"{say(f'level.{one.level}')}: {one.text}" for one in page.notices]
    findings, verdict = page.boxes
    told += [*findings.paragraphs, verdict.title, *(f"- {one}" for one in verdict.points)]
    yield from map(words.unmark_code, told)


def list_findings(comparison: Comparison) -> Iterator[Statement]:
    """Yield what the numbers say; the same numbers say the same."""
    table, pairs, measure = comparison.table, comparison.pairs, comparison.table.measure
    if table.is_fair is False:
        yield Statement("finding.confounded")
    if not pairs and len(comparison.cells) == 1 and comparison.cells[0].value is not None:
        (one,) = comparison.cells
        values = {"name": one.system, "value": one.value, "measure": measure}
        yield Statement("finding.alone", values)
    for pair in pairs[:MAX_PAIRS]:
        named = {"first": pair.first, "second": pair.second}
        if len(pair.gaps) > 1:
            counts = dict(zip(("better", "worse", "equal"), pair.counts, strict=True))
            counts |= {"num_cells": len(pair.gaps)}
            better, worse = pair.clear
            clear = {"better": better, "worse": worse, "num_tested": pair.num_tested}
            kind = "finding.grid_nothing" if pair.mean is None else "finding.grid"
            told = Statement("grid.clear" if pair.num_tested else "grid.untested", clear)
            values = {"num_compared": sum(pair.counts), "mean": pair.mean, "clear": told}
            yield Statement(kind, named | counts | values)
            continue
        gap = next(iter(pair.gaps))
        if gap.difference is None:
            why = Statement(f"why.{gap.why_none}")
            yield Statement("finding.not_compared", named | {"why": why})
        else:
            yield from _state_gap(comparison, pair, gap, named)
    if len(pairs) > MAX_PAIRS:
        yield Statement("finding.more_pairs", {"num": len(pairs) - MAX_PAIRS})
    if not table.is_of_methods and any(pair.num_tested for pair in pairs):
        yield Statement("finding.checkpoints")


def _state_gap(
    comparison: Comparison, pair: Pair, gap: Gap, named: Mapping[str, Any]
) -> Iterator[Statement]:
    """Say what both reach, how they differ, whether that is clear, and what it would take."""
    measure, test = comparison.table.measure, gap.test
    one, two = (comparison.table.summarize(x, gap.cell) for x in (pair.first, pair.second))
    values = {"value_first": one.value, "value_second": two.value, "measure": measure}
    on_items = Statement("on_items", {"num": one.n}) if one.n else ""
    yield Statement("finding.values", {**named, **values, "on_items": on_items})
    ending = Statement("ending.none" if gap.ends is None else "ending.close")
    if gap.is_clear:
        is_first = measure.sign * (gap.difference or 0.0) > 0
        ending = Statement("ending.clear", {"better": pair.first if is_first else pair.second})
    values = {"difference": gap.difference, "ending": ending, "interval": gap.state_interval()}
    yield Statement("finding.gap", {**named, **values})
    needed: dict[str, Any] = {}
    if isinstance(test, PairedComparison):
        if gap.is_clear and test.rests_on_few:
            yield Statement("finding.rests_on_few", {"num": round(test.num_carrying or 0)})
        wins, losses = test.count_wins(measure)
        yield Statement("finding.won", {**named, "only_first": wins, "only_second": losses})
        needed = {"items": test.num_items_needed, "n": test.n}
        kind = "items" if test.num_items_needed is not None else ""
    elif test is not None and gap.ends is not None:
        needed = {"seeds": test.seeds_needed, "items": test.items_needed}
        is_seen = test.seeds_needed is not None
        kind = ("either" if test.items_needed else "seeds") if is_seen else "none"
    if needed and kind and not gap.is_clear:
        yield Statement("finding.power", {"needed": Statement(f"power.{kind}", needed)})


def lay_out_comparison(comparison: Comparison, language: Language = "en") -> blocks.Page:
    """Return the page of a comparison."""
    layout = ComparisonLayout(comparison, Phrases(language, policies=comparison.table.policies))
    table, say = comparison.table, layout.phrases.say
    folders = dict.fromkeys(words.mark_code(x.folder) for x in table.results if x.folder)
    sources = (
        [Block(say("sources"), "fold", blocks=(Block(points=tuple(folders)),))] if folders else []
    )
    parts = {
        "results": layout.show_results(),
        "sides": layout.show_sides(),
        "training": layout.show_training(),
        "values": layout.show_grids(),
        "differences": layout.show_differences(),
        "discordant": layout.show_discordant(),
        "own_reports": layout.show_sections(),
    }
    return blocks.Page(
        title=table.title,
        lead=layout.title_measure(),
        language=language,
        notices=tuple(blocks.Notice(x.level, layout.say(x)) for x in comparison.notices),
        checked=say("comparison_checked"),
        legend=tuple(zip(layout.colors, layout.titles.values(), strict=True)),
        boxes=layout.show_boxes(),
        parts=tuple(blocks.Part(x, say(x), tuple(own)) for x, own in parts.items() if own),
        footer=(*sources, Block(say("comparison_footer"), "plain")),
        is_sortable=True,
    )


class ComparisonLayout:
    """The blocks of a comparison in the words of one language."""

    def __init__(self, comparison: Comparison, phrases: Phrases) -> None:
        self.comparison = comparison
        self.table = comparison.table
        self.phrases = phrases
        self.names = self.table.systems
        self.colors = [plots.pick_color(place) for place in range(len(self.names))]
        # Values of an axis are shown with the last part of its key.
        axis = self.table.system_axis.rpartition(".")[2]
        self.titles = {x: f"{axis} {x}" if axis else phrases.title_policy(x) for x in self.names}

    def title_measure(self) -> str:
        """Return ``Accuracy · test``."""
        return f"{self.phrases.title_measure(self.table.measure)} · {self.table.split}"

    def say(self, statement: Statement) -> str:
        """Return the sentence of a statement, with systems and places as they are called."""
        language, values = self.phrases.language, dict(statement.values)
        for key, value in values.items():
            if key in _NAMED and isinstance(value, str):
                values[key] = self.titles.get(value, value)
            elif key == "names":
                values[key] = [self.titles[name] for name in value]
            elif key == "at":
                values[key] = self.place_after(value)
            elif key == "axis":
                values[key] = value.rpartition(".")[2]
            elif key == "aspect":
                values[key] = self.phrases.title("aspect", value)
            elif key == "why" and isinstance(value, Mapping):
                values[key] = _capitalize(value[language])
            elif key == "pairs":
                against, between = (" 对 ", "；") if language == "zh" else (" against ", "; ")
                shown = [(name, against.join(x or NOT_RUN for x in own)) for name, own in value]
                values[key] = between.join(" ".join(one).strip() for one in shown)
            elif isinstance(value, Statement):
                values[key] = self.say(value)
        return self.phrases.say(statement.kind, **values)

    def place(self, cell: Coordinates) -> str:
        """Return ``epoch 1, size 200``; empty without axes."""
        parts = zip(self.table.axes, cell, strict=True)
        return self.phrases.join(f"{self._title_axis(axis)} {value}" for axis, value in parts)

    def _title_axis(self, axis: GridAxis) -> str:
        return self.phrases.title("axis", axis.key.rpartition(".")[2])

    def place_after(self, cell: Coordinates) -> str:
        """Return `` (epoch 1, size 200)``; empty without axes."""
        brackets = "（{}）" if self.phrases.language == "zh" else " ({})"
        return brackets.format(self.place(cell)) if cell else ""

    def name_pair(self, pair: Pair) -> str:
        """Return ``first − second``, with the axis of systems named once."""
        second = pair.second if self.table.system_axis else self.titles[pair.second]
        return f"{self.titles[pair.first]} {MINUS} {second}"

    def show_boxes(self) -> tuple[blocks.Box, blocks.Box]:
        """Return the findings, a paragraph per pair, and the recommendation with its reasons."""
        found: dict[object, list[str]] = {}
        place: object = None
        for one in list_findings(self.comparison):
            if "first" in one.values:
                place = one.values["first"], one.values["second"]
            elif one.kind in ("finding.checkpoints", "finding.more_pairs"):
                place = one.kind
            found.setdefault(place, []).append(self.say(one))
        join = "" if self.phrases.language == "zh" else " "
        name, kind = self.comparison.recommended, "recommended"
        kind += "" if self.table.is_of_methods else "_checkpoint"
        title = self.phrases.say("no_recommendation")
        title = title if name is None else self.phrases.say(kind, name=self.titles[name])
        reasons = tuple(map(self.say, self.comparison.reasons))
        findings = self.phrases.say("findings")
        return (
            blocks.Box("findings", tuple(map(join.join, found.values())), findings),
            blocks.Box("verdict" if name is None else "verdict yes", (), title, reasons),
        )

    def show_results(self) -> list[Block | Table]:
        """Return a row per system, and a dot per seed."""
        say_each, seeds = self.phrases.say_each, list[int]()
        if self.table.is_of_methods:
            seeds = sorted({one.seed for one in self.table.results if one.value is not None})
        head = say_each("system", "value" if not seeds and not self.table.axes else "mean")
        head += say_each("cells") if self.table.axes else ()
        head += tuple(self.phrases.say("seed_of", seed=seed) for seed in seeds)
        head += say_each("invalid", "n_items", "digest")
        rows = tuple(tuple(self._show_row(name, seeds)) for name in self.names)
        table = Table("", head, rows, kind="headline", marks=tuple(self.colors))
        found: list[Block | Table] = [Block(self.phrases.say("results_lead")), table]
        if seeds and not self.table.axes:
            cells = [one for one in self.comparison.cells if one.seeds]
            shown = [(self.titles[one.system], [x for _, x in one.seeds]) for one in cells]
            caption = self.phrases.say("seeds_caption")
            plot = plots.plot_seeds("seeds", self.title_measure(), shown, caption=caption)
            found.append(Block(plots=(plot,), kind="forest"))
        return found

    def _show_row(self, name: str, seeds: Sequence[int]) -> Iterator[Cell]:
        results = [one for one in self.table.results if one.system == name]
        cells = [one for one in self.comparison.cells if one.system == name]
        known = [one for one in cells if one.value is not None]
        note = "" if name.endswith(results[0].policy) else results[0].policy
        yield Cell(self.titles[name], note, is_strong=self.comparison.recommended == name)
        mean = _average(one.value for one in known)
        text = words.format_share(mean, decimals=_count_decimals(known))
        interval = "" if self.table.axes else _show_interval(cells[0])
        yield show_value(cells[0]) if mean is None else Cell(text, interval, mean)
        if self.table.axes:
            of = self.phrases.say("of", part=len(known), all=len(cells))
            yield Cell(of, order=len(known))
        for seed in seeds:
            yield _show(_average(x.value for x in results if x.seed == seed), words.format_share)
        yield _show(_average(one.invalid_rate for one in known), words.format_share)
        sizes = sorted({one.n for one in results if one.n is not None})
        ends = DASH.join(map(words.format_count, dict.fromkeys(sizes[:1] + sizes[-1:])))
        clusters = min((one.num_clusters for one in results if one.num_clusters), default=0)
        note = self.phrases.count(clusters, "cluster") if clusters else ""
        yield Cell(ends or DASH, note, sizes[0] if sizes else None)
        digests = sorted({one.digest for one in results if one.digest})
        text = f"{digests[0][:8]} +{len(digests) - 1}".removesuffix(" +0") if digests else DASH
        yield Cell(text, hint=" ".join(digests), is_code=bool(digests))

    def show_sides(self) -> list[Block | Table]:
        """Return what differs in settings and data, and folded what is the same."""
        unlike = [row for row in self.table.sides if row.kind is not None]
        same = [row for row in self.table.sides if row.kind is None]
        found: list[Block | Table] = []
        if unlike:
            found = [Block(self.phrases.say("sides_lead")), self._tabulate_sides(unlike)]
        elif same:
            found = [Block(self.phrases.say("none_differ"), "absent")]
        title = self.phrases.say("same_sides", num=len(same))
        return [
            *found,
            *([Block(title, "fold", blocks=(self._tabulate_sides(same),))] if same else []),
        ]

    def _tabulate_sides(self, rows: Sequence[SideRow]) -> Table:
        say, language = self.phrases.say, self.phrases.language
        kept = [True] * (len(self.names) + 1) + [any(row.kind for row in rows)]
        shown: list[tuple[Cell, ...]] = []
        for row in rows:
            tag = say(f"kind.{row.kind}") if row.kind else ""
            note = self.phrases.title("aspect", row.aspect)
            title = Cell(row.key, note, tag=tag, tag_kind=row.kind or "", is_code=True)
            values = [Cell(say("not_recorded") if one is None else one) for one in row.values]
            shown.append((title, *values, Cell(row.why.get(language, ""))))
        head = (say("setting"), *self.titles.values(), say("why"))
        rest = tuple(tuple(compress(one, kept)) for one in shown)
        return Table(
            "", tuple(compress(head, kept)), rest, kind="wrap sides" if kept[-1] else "wrap"
        )

    def show_training(self) -> list[Block | Table]:
        """Return curves with a line per system, and the last values of every epoch."""
        say, title = self.phrases.say, self.phrases.title
        lines: dict[tuple[str, str], list[plots.Line]] = {}
        for one in self.table.curves:
            band = (one.low, one.high) if one.num_runs > 1 else ((), ())
            color = self.colors[self.names.index(one.system)]
            line = plots.Line(self.titles[one.system], one.steps, one.mean, color, *band)
            lines.setdefault((one.step_name, one.key), []).append(line)
        drawn = [
            plots.plot_lines(
                plots.name_file("curve", step, key.replace("/", "-").replace("_", "-")),
                say("plot_of", key=title("series", key), step=step),
                own,
                self.phrases,
            )
            for (step, key), own in list(lines.items())[:MAX_CURVES]
        ]
        found: list[Block | Table] = []
        if drawn:
            found = [Block(say("curves_lead")), Block(plots=tuple(drawn))]
        found += [Block(say("last_values"), "heading")] if self.table.epochs else []
        for step in dict.fromkeys(row.step for row in self.table.epochs):
            rows = [row for row in self.table.epochs if row.step == step]
            keys = list(dict.fromkeys(key for row in rows for key in row.values))
            head = (*self.phrases.say_each("system", "epoch"), *(title("series", x) for x in keys))
            shown = tuple(
                (
                    Cell(self.titles[row.system]),
                    Cell(str(row.epoch), order=row.epoch),
                    *(_show(row.values.get(key), words.format_plain) for key in keys),
                )
                for row in rows
            )
            found.append(Table(step, head, shown, num_heads=2))
        return found

    def show_grids(self) -> list[Block | Table]:
        """Return a heat map of values per system, all on one scale."""
        if not self.table.axes:
            return []
        scale = self._span(one.value for one in self.comparison.cells)
        shown = {name: dict[Coordinates, Cell]() for name in self.names}
        for one in self.comparison.cells:
            shown[one.system][one.cell] = show_value(one, scale)
        tables = [self._tabulate_grid(self.titles[name], own) for name, own in shown.items()]
        return [Block(self.phrases.say("grids_lead")), Block(tables=tuple(tables))]

    def _span(self, values: Iterable[float | None]) -> Scale:
        known = [value for value in values if value is not None]
        return Scale(min(known, default=0.0), max(known, default=0.0), self.table.measure.sign)

    def _tabulate_grid(self, title: str, shown: Mapping[Coordinates, Cell]) -> Table:
        """Return a grid with the last axis as columns."""
        *outer, last = self.table.axes
        heads = [
            *map(self._title_axis, outer),
            *(f"{self._title_axis(last)} {x}" for x in last.values),
        ]
        starts = dict.fromkeys(cell[:-1] for cell in shown)
        rows = [(*map(Cell, x), *(shown[*x, value] for value in last.values)) for x in starts]
        return Table(title, tuple(heads), tuple(rows), len(outer), "heat")

    def show_differences(self) -> list[Block | Table]:
        """Return each pair's test; of a grid means by axis and a heat map; a forest plot."""
        pairs, say = self.comparison.pairs, self.phrases.say
        if not pairs:
            return []
        found: list[Block | Table] = [Block(say("differences_lead"))]
        if self.table.axes:
            scale = self._span(gap.difference for one in pairs for gap in one.gaps)
            grids = [
                self._tabulate_grid(
                    self.name_pair(one), {x.cell: self._show_gap(x, scale) for x in one.gaps}
                )
                for one in pairs
            ]
            axes = [self._tabulate_axis(place) for place in range(len(self.table.axes))]
            found += [
                self._tabulate_summary(),
                Block(say("by_axis"), "heading"),
                Block(tables=tuple(axes)),
            ]
            return [*found, Block(say("every_cell"), "heading"), Block(tables=tuple(grids))]
        found.append(self._tabulate_tests())
        bars = [
            plots.Bar(
                self.name_pair(pair),
                f"{words.format_points(gap.difference)} ({self.phrases.interval(*gap.ends)})",
                gap.difference,
                gap.ends,
                plots.pick_color(place),
                self._show_gap(gap).is_strong,
            )
            for place, pair in enumerate(pairs)
            for gap in pair.gaps
            if gap.difference is not None and gap.ends is not None
        ]
        if bars:
            axis = say("forest_axis")
            plot = plots.plot_bars("forest", self.title_measure(), bars, axis=axis)
            found.append(Block(plots=(plot,), kind="forest"))
        return found

    def _show_gap(self, gap: Gap, scale: Scale | None = None) -> Cell:
        """Return a difference, marked if it is clear and the comparison fair."""
        if gap.difference is None:
            return Cell(_NO_GAP[gap.why_none])
        is_strong = gap.is_clear and self.table.is_fair is not False
        shown = show_points(
            gap.difference, style=scale.shade_difference(gap.difference) if scale else ""
        )
        note = self.phrases.interval(*gap.ends) if scale and gap.ends else ""
        hint = words.format_p_value(gap.p_holm) if gap.p_holm is not None else ""
        text = shown.text + (STAR if is_strong else "")
        return replace(shown, text=text, note=note, hint=hint, is_strong=is_strong)

    def _tabulate_tests(self) -> Table:
        """Return a row per pair: difference, interval, p, and what it rests on."""
        count, methods = words.format_count, self.table.is_of_methods
        more = ("seed_share", "seeds_needed") if methods else ("effect", "won_lost")
        head = ("pair", "difference", "interval", "p_holm", *more, "items_needed")
        rows: list[tuple[Cell, ...]] = []
        for pair in self.comparison.pairs:
            (gap,) = pair.gaps
            test, note, df, cells = gap.test, "", "", [Cell(DASH)] * 3
            if isinstance(test, MethodDifference):
                note = self.phrases.say("paired_by_seed" if test.is_paired else "not_paired")
                share = _show(test.seed_share, words.format_share)
                if test.seed_share is not None:  # The rest is of clusters.
                    rest = self.phrases.say("of_clusters", share=1 - test.seed_share)
                    share, df = replace(share, note=rest), f"df {test.df:.1f}"
                cells = [share]
                cells += [_show(one, count) for one in (test.seeds_needed, test.items_needed)]
            elif test is not None:
                wins, losses = test.count_wins(self.table.measure)
                won = Cell(f"{wins} : {losses}", order=wins - losses)
                effect = test.effect_size and test.effect_size / 100
                cells = [_show(effect, words.format_points, decimals=2), won]
                cells.append(_show(test.num_items_needed, count))
            ends = self.phrases.interval(*gap.ends) if gap.ends else self.phrases.say("untested")
            interval = Cell(ends, df, gap.ends[0] if gap.ends else None)
            p = _show(gap.p_holm, words.format_p_cell)
            rows.append(
                (Cell(self.name_pair(pair), note), self._show_gap(gap), interval, p, *cells)
            )
        return Table("", self.phrases.say_each(*head), tuple(rows))

    def _tabulate_summary(self) -> Table:
        """Return a row per pair: mean, extremes, cells better and worse, what survives."""
        head = ("pair", "mean", "best_gain", "worst_loss", "better_worse_equal", "cells", "survive")
        rows: list[tuple[Cell, ...]] = []
        for pair in self.comparison.pairs:
            found = [gap for gap in (pair.best, pair.worst) if gap is not None]
            ends = [show_points(gap.difference, self.place(gap.cell)) for gap in found]
            ends = ends or [Cell(NOT_RUN)] * 2
            counts = Cell(" : ".join(map(str, pair.counts)), order=pair.counts[0] - pair.counts[1])
            compared, clear = sum(pair.counts), sum(pair.clear)
            cells = self.phrases.say("of", part=compared, all=len(pair.gaps))
            told = self.phrases.say("of", part=clear, all=pair.num_tested)
            told = told if pair.num_tested else self.phrases.say("untested")
            sizes = (counts, Cell(cells, order=compared), Cell(told, order=clear))
            rows.append((Cell(self.name_pair(pair)), show_points(pair.mean), *ends, *sizes))
        return Table("", self.phrases.say_each(*head), tuple(rows))

    def _tabulate_axis(self, place: int) -> Table:
        """Return the mean difference of every pair by the values of an axis, with trends."""
        axis, pairs, trend = (
            self.table.axes[place],
            self.comparison.pairs,
            self.phrases.say("trend"),
        )
        titles = list(map(self.name_pair, pairs))
        is_beside = not axis.has_epochs and any(one.has_epochs for one in self.table.axes)
        heads = [self._title_axis(axis), *titles]
        heads += [f"{trend}\n{one}" if titles[1:] else trend for one in titles if is_beside]
        rows: list[tuple[Cell, ...]] = []
        for number, value in enumerate(axis.values):
            means = [pair.by_axis[place][number] for pair in pairs]
            counts = [{"part": one.num_compared, "all": one.num_cells} for one in means]
            notes = [self.phrases.say("over", **one) for one in counts]
            cells = [show_points(one.mean, note) for one, note in zip(means, notes, strict=True)]
            cells += [show_points(one.trend) for one in means if is_beside]
            rows.append((Cell(value, order=float(number)), *cells))
        if axis.has_epochs:
            changes = [show_points(pair.trends[place]) for pair in pairs]
            rows.append((Cell(trend, order=float(len(rows))), *changes))
        return Table(axis.key, tuple(heads), tuple(rows))

    def show_discordant(self) -> list[Block | Table]:
        """Return the items that the systems of each pair differ in, with both answers."""
        say, found = self.phrases.say, list[tuple[str, Table]]()
        for pair in (one for one in self.comparison.pairs if one.discordant):
            named = {"pair": self.name_pair(pair), "at": self.place_after(pair.discordant_cell)}
            counts = dict(zip(("first", "second", "all"), pair.won, strict=True))
            lead = say("discordant_lead", **named, **counts, shown=len(pair.discordant))
            answers = [say("answer_of", name=self.titles[x]) for x in (pair.first, pair.second)]
            # Open answers have no truth to show.
            kept = (True, any(one.label for one in pair.discordant), True, True)
            rows = [
                (
                    Cell(one.task or one.id[:8], one.cluster, hint=one.id),
                    Cell(one.label or ""),
                    Cell(one.answer_a or say("no_answer"), self._mark(one.value_a)),
                    Cell(one.answer_b or say("no_answer"), self._mark(one.value_b)),
                )
                for one in pair.discordant
            ]
            head = tuple(compress((*self.phrases.say_each("item", "truth"), *answers), kept))
            shown = tuple(tuple(compress(row, kept)) for row in rows)
            found.append((lead, Table("", head, shown, kind="wrap items")))
        if len(found) == 1:
            return [Block(found[0][0]), found[0][1]]
        return [Block(lead, "fold", blocks=(table,)) for lead, table in found]

    def _mark(self, value: float) -> str:
        """Return a tick for the best value, a cross for the worst, or the score between them."""
        if value not in (0, 1):
            return words.format_coefficient(value)
        return "✓" if (value == 1) == self.table.measure.is_higher_better else "✗"

    def show_sections(self) -> list[Block | Table]:
        """Return what the recipe of each system adds to its report."""
        found: list[Block | Table] = []
        for name, sections in self.table.sections.items():
            own: list[Block | Table] = []
            for one in sections:
                if one.language in (None, self.phrases.language):
                    own += [Block(one.title, "heading"), Block(one.text), *one.tables]
            kept = [one for one in own if one != Block("")]
            found.append(Block(self.titles[name], "fold", blocks=tuple(kept)))
        return found


def show_value(one: Result, scale: Scale | None = None) -> Cell:
    """Return the value of a cell, ``?`` where it has not run, a dash where it has none."""
    if one.value is None:
        return Cell(DASH if one.state == "inapplicable" else NOT_RUN, hint=one.error)
    text = words.format_share(one.value, decimals=_count_decimals([one]))
    if scale is None:
        return Cell(text, order=one.value)
    hint = f"n = {words.format_count(one.n)}" if one.n else ""
    return Cell(text, _show_interval(one), one.value, scale.shade_value(one.value), hint)


def show_points(value: float | None, note: str = "", style: str = "") -> Cell:
    """Return a difference of shares in points with its arrow, ``?`` where there is none."""
    if value is None:
        return Cell(NOT_RUN, note)
    return Cell(
        f"{words.format_points(value)}{NBSP}{words.choose_arrow(value)}", note, value, style
    )


def _show(value: Any, form: Callable[..., str], **named: Any) -> Cell:
    return Cell(DASH if value is None else form(value, **named), order=value)


def _average(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _count_decimals(cells: Iterable[Result]) -> int:
    """Return two for what was only reported, as it was typed, else one."""
    return 2 if all(one.low is None and not one.seeds[1:] for one in cells) else 1


def _show_interval(one: Result) -> str:
    if one.low is None or one.high is None:
        return ""
    return words.format_share_interval(one.low, one.high)


def _capitalize(clause: str) -> str:
    """Return a clause as the beginning of a sentence; a key at its start keeps its letters."""
    return clause[:1].upper() + clause[1:] if clause.split(" ", 1)[0].isalpha() else clause
