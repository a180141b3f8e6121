"""The page of a comparison: of runs, of methods over seeds, of a sweep.

Warnings first, then what the numbers say, a recommendation or the reasons for none, and tables;
HTML, Markdown and JSON of the same data, in English and Chinese. Nothing is computed here but means
over cells and their trends.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from pydantic_core import to_jsonable_python

from groupwise.core import write_json
from groupwise.evaluation.compare import Comparison, Gap, Pair
from groupwise.evaluation.predictions import Language
from groupwise.evaluation.report import page as blocks
from groupwise.evaluation.report import phrases as words
from groupwise.evaluation.report.page import Block, Cell, Table
from groupwise.evaluation.report.phrases import DASH, MINUS, NBSP, Phrases, Statement
from groupwise.evaluation.result_table import Coordinates, Result
from groupwise.evaluation.statistics import MethodDifference

NOT_RUN, OTHER_ITEMS, STAR = "?", "≠", f"{NBSP}★"
MAX_PAIRS, MAX_ITEMS = 6, 20
_NO_GAP = {"missing": NOT_RUN, "inapplicable": DASH, "other_items": OTHER_ITEMS}


def write_comparison(comparison: Comparison, folder: Path, *, language: Language = "en") -> Path:
    """Write ``comparison.html``, ``.md`` with its plots, and ``.json``; return that of the HTML."""
    html, _ = blocks.write_page(lay_out_comparison(comparison, language), folder, name="comparison")
    in_runs = {"table": {"results": {"__all__": {"items", "answers"}}}}
    told = to_jsonable_python(comparison, exclude=in_runs)
    told["findings"] = to_jsonable_python([*list_findings(comparison)])
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
    table, pairs, sign = comparison.table, comparison.pairs, comparison.table.measure.sign
    reached = [(one.system, one.value) for one in comparison.cells if one.value is not None]
    if reached and not table.axes:
        values = {"measure": table.measure, "split": table.split, "reached": reached}
        yield Statement("finding.values", values)
    for pair in pairs[:MAX_PAIRS]:
        named: dict[str, Any] = {"first": pair.first, "second": pair.second}
        gap = next(iter(pair.gaps), Gap((), None, "missing"))
        if pair.mean is None:
            why = Statement(f"why.{gap.why_none}")
            yield Statement("finding.not_compared", named | {"why": why})
        elif table.axes:
            gains = [sign * one.difference for one in pair.gaps if one.difference is not None]
            named |= {"mean": pair.mean, "gain": sign * max(gains), "loss": sign * min(gains)}
            named |= {"num_cells": len(pair.gaps), "num_compared": len(gains)}
            named |= {"counts": pair.counts, "clear": pair.clear, "num_tested": pair.num_tested}
            yield Statement("finding.grid", named)
        else:
            ending = Statement("ending.none" if gap.ends is None else "ending.close")
            if gap.is_clear:
                better = pair.first if sign * (gap.difference or 0.0) > 0 else pair.second
                ending = Statement("ending.clear", {"better": better})
            named |= {"difference": gap.difference, "interval": gap.state_interval()}
            yield Statement("finding.gap", named | {"ending": ending})
    if len(pairs) > MAX_PAIRS:
        yield Statement("finding.more_pairs", {"num": len(pairs) - MAX_PAIRS})
    if not table.is_of_methods and any(pair.num_tested for pair in pairs):
        yield Statement("finding.checkpoints")


def lay_out_comparison(
    comparison: Comparison, language: Language = "en", *, own: Path | None = None
) -> blocks.Page:
    """Return the page of a comparison; ``own`` is a file of further phrases, as of ``Phrases``."""
    layout, table = ComparisonLayout(comparison, language, own), comparison.table
    say, name = layout.say, comparison.recommended
    kind = "recommended" if table.is_of_methods else "recommended_checkpoint"
    title = say("no_recommendation") if name is None else say(kind, name=name)
    kind = "verdict" if name is None else "verdict yes"
    boxes = (
        blocks.Box("findings", tuple(map(say, list_findings(comparison))), say("findings")),
        blocks.Box(kind, (), title, tuple(map(say, comparison.reasons))),
    )
    folders = dict.fromkeys(words.mark_code(x.folder) for x in table.results if x.folder)
    sources = Block(say("sources"), "fold", blocks=(Block(points=tuple(folders)),))
    parts = {
        "results": layout.show_results(),
        "values": layout.show_values(),
        "differences": layout.show_differences(),
        "sides": layout.show_sides(),
        "discordant": layout.show_items(),
    }
    shown = [blocks.Part(key, say(key), tuple(own)) for key, own in parts.items()]
    return blocks.Page(
        title=table.title,
        lead=layout.lead,
        language=language,
        notices=tuple(blocks.Notice(x.level, say(x)) for x in comparison.notices),
        checked=say("comparison_checked"),
        boxes=boxes,
        parts=tuple(part for part in shown if part.blocks),
        footer=(*([sources] if folders else []), Block(say("comparison_footer"), "plain")),
        is_sortable=True,
    )


class ComparisonLayout(Phrases):
    """The blocks of a comparison in one language: phrases that know what its systems are called."""

    def __init__(self, comparison: Comparison, language: Language, own: Path | None = None) -> None:
        super().__init__(language, policies=comparison.table.policies, own=own)
        self.comparison, self.table = comparison, comparison.table
        # Values of an axis are shown with the last part of its key.
        axis, names = self.table.system_axis.rpartition(".")[2], self.table.systems
        self.titles = {x: f"{axis} {x}" if axis else self.title_policy(x) for x in names}
        self.cells = {x: [one for one in comparison.cells if one.system == x] for x in names}
        self.axes = [self.title("axis", key.rpartition(".")[2]) for key in self.table.axes]
        self.lead = f"{self.title_measure(self.table.measure)} · {self.table.split}"
        against = " 对 " if language == "zh" else " against "
        self._forms = {
            **self._forms,
            "title": lambda name: self.titles.get(name, str(name)),
            "titles": lambda found: self.join(self.titles[x] for x in found),
            "values": lambda found: self.join(
                f"{self.titles[x]} {words.format_share(value)}" for x, value in found
            ),
            "sides": lambda sides: against.join(one or NOT_RUN for one in sides),
            "place": self._name_place,
            "clause": self._begin_clause,
        }

    def _name_place(self, cell: Coordinates) -> str:
        """Return `` (epoch 1, size 200)``; empty without axes."""
        brackets = "（{}）" if self.language == "zh" else " ({})"
        parts = (f"{axis} {x}" for axis, x in zip(self.axes, cell, strict=True))
        return brackets.format(self.join(parts)) if cell else ""

    def _begin_clause(self, why: Mapping[str, str]) -> str:
        """Return a clause as a sentence begins; a key or a run at its start keeps its letters."""
        clause = why[self.language]
        first = clause.split(" ", 1)[0]
        is_word = first.isalpha() and first not in self.table.systems
        return clause[:1].upper() + clause[1:] if is_word else clause

    def _name_pair(self, pair: Pair) -> str:
        """Return ``first − second``, with the axis of systems named once."""
        second = pair.second if self.table.system_axis else self.titles[pair.second]
        return f"{self.titles[pair.first]} {MINUS} {second}"

    def show_results(self) -> Iterator[Block | Table]:
        """Yield a row per system, with a value per seed."""
        axes, seeds = self.table.axes, list[int]()
        if self.table.is_of_methods and not axes:
            seeds = sorted({one.seed for one in self.table.results if one.value is not None})
        head = self.say_each("system", "mean" if seeds or axes else "value")
        head += tuple(self.say("seed_of", seed=seed) for seed in seeds)
        head += self.say_each("invalid", "n_items", "digest")
        rows: list[tuple[Cell, ...]] = []
        for name, cells in self.cells.items():
            results = [one for one in self.table.results if one.system == name]
            known = [one.value for one in cells if one.value is not None]
            note = "" if name.endswith(results[0].policy) else results[0].policy
            is_strong = self.comparison.recommended == name
            row = [Cell(self.titles[name], note, is_strong=is_strong), show_value(cells[0])]
            if axes and known:
                over = self.say("over", part=len(known), all=len(cells))
                row[-1] = Cell(words.format_share(fmean(known)), over, fmean(known))
            rates = [one.invalid_rate for one in cells if one.invalid_rate is not None]
            shares = [dict(cells[0].seeds).get(seed) for seed in seeds]
            shares.append(fmean(rates) if rates else None)
            row += [Cell(words.format_share(share), order=share) for share in shares]
            sizes = sorted({one.n for one in results if one.n is not None})
            ends = DASH.join(map(words.format_count, dict.fromkeys(sizes[:1] + sizes[-1:])))
            clusters = min((one.num_clusters for one in results if one.num_clusters), default=0)
            note = self.count(clusters, "cluster") if clusters else ""
            row.append(Cell(ends or DASH, note, sizes[0] if sizes else None))
            digests = sorted({one.digest[:8] for one in results if one.digest})
            more = f" +{len(digests) - 1}" if digests[1:] else ""
            row.append(Cell(digests[0] + more if digests else DASH, is_code=bool(digests)))
            rows.append(tuple(row))
        yield Block(self.say("results_lead"))
        yield Table("", head, tuple(rows), kind="headline")

    def show_sides(self) -> Iterator[Block | Table]:
        """Yield what differs in settings and data, and why that is so; folded what is the same."""
        head, told = (self.say("setting"), *self.titles.values()), ""
        tables: dict[bool, list[tuple[Cell, ...]]] = {True: [], False: []}
        for row in self.table.sides:
            why, kind = row.why.get(self.language, ""), row.kind or ""
            title = Cell(f"{row.aspect}/{row.key}", "" if why == told else why, is_code=True)
            title, told = replace(title, tag=kind and self.say(f"kind.{kind}"), tag_kind=kind), why
            values = (Cell(self.say("not_recorded") if x is None else x) for x in row.values)
            tables[row.kind is not None].append((title, *values))
        unlike, same = (Table("", head, tuple(rows), kind="wrap sides") for rows in tables.values())
        if unlike.rows:
            yield Block(self.say("sides_lead"))
            yield unlike
        if same.rows:
            yield Block(self.say("same_sides", num=len(same.rows)), "fold", blocks=(same,))

    def show_values(self) -> Iterator[Block | Table]:
        """Yield a grid of values per system."""
        if self.table.axes:
            yield Block(self.say("grids_lead"))
            shown = [{one.cell: show_value(one) for one in own} for own in self.cells.values()]
            yield self._lay_out_grids(zip(self.titles.values(), shown, strict=True))

    def _lay_out_grids(self, shown: Iterable[tuple[str, Mapping[Coordinates, Cell]]]) -> Block:
        """Return grids with their titles, the last axis as columns."""
        *_, last = self.table.axes.values()
        head = (*self.axes[:-1], *(f"{self.axes[-1]} {x}" for x in last))
        tables: list[Table] = []
        for title, cells in shown:
            starts = dict.fromkeys(cell[:-1] for cell in cells)
            rows = tuple((*map(Cell, x), *(cells[*x, value] for value in last)) for x in starts)
            tables.append(Table(title, head, rows, len(self.axes) - 1, "matrix"))
        return Block(tables=tuple(tables))

    def show_differences(self) -> Iterator[Block | Table]:
        """Yield each pair's test and interval; of a grid means by axis, trends, and every cell."""
        pairs, axes = self.comparison.pairs, self.table.axes
        if not pairs or not self.titles:  # a study may have no cell yet
            return
        yield Block(self.say("differences_lead"))
        if not axes:
            yield from self._show_tests()
            return
        titles = list(map(self._name_pair, pairs))
        are_epochs = [x[1:] and re.search("epoch|checkpoint", k.lower()) for k, x in axes.items()]
        epochs = [place for place, holds in enumerate(are_epochs) if holds][:1]
        for place, (name, values) in enumerate(zip(self.axes, axes.values(), strict=True)):
            others = [x for x in epochs if x != place]
            trends = [f"{self.say('trend')}\n{title}" for _ in others for title in titles]
            rows: list[tuple[Cell, ...]] = []
            for value in values:
                groups = [[x for x in pair.gaps if x.cell[place] == value] for pair in pairs]
                changes = [_show_trend(gaps, other) for other in others for gaps in groups]
                rows.append((Cell(value), *map(self._average_gaps, groups), *changes))
            yield Table(f"{self.say('by_axis')} {name}", (name, *titles, *trends), tuple(rows))
        yield Block(self.say("every_cell"), "heading")
        gaps = ({gap.cell: self._show_gap(gap) for gap in pair.gaps} for pair in pairs)
        yield self._lay_out_grids(zip(titles, gaps, strict=True))

    def _average_gaps(self, gaps: Sequence[Gap]) -> Cell:
        known = [gap.difference for gap in gaps if gap.difference is not None]
        over = self.say("over", part=len(known), all=len(gaps))
        return show_points(fmean(known) if known else None, over)

    def _show_gap(self, gap: Gap) -> Cell:
        """Return a difference, marked if it is clear and the comparison fair."""
        if gap.difference is None:
            return Cell(_NO_GAP[gap.why_none])
        is_strong = gap.is_clear and self.table.is_fair is not False
        note = self.interval(*gap.ends) if gap.ends and self.table.axes else ""
        shown = show_points(gap.difference, note)
        return replace(shown, text=shown.text + STAR * is_strong, is_strong=is_strong)

    def _show_tests(self) -> Iterator[Block | Table]:
        """Yield per pair a row of difference, interval, p and what it rests on; and a plot."""
        say, last = self.say, "seed_share" if self.table.is_of_methods else "won_lost"
        head = self.say_each("pair", "difference", "interval", "p_holm", last)
        rows, intervals = list[tuple[Cell, ...]](), list[blocks.Interval]()
        for pair in self.comparison.pairs:
            (gap,) = pair.gaps
            test, note, df, cell = gap.test, "", "", Cell(DASH)
            if isinstance(test, MethodDifference):
                note = say("paired_by_seed" if test.is_paired else "not_paired")
                if (share := test.seed_share) is not None:  # The rest is of clusters.
                    rest, df = say("of_clusters", share=1 - share), f"df {test.df:.1f}"
                    cell = Cell(words.format_share(share), rest, share)
            elif test is not None:
                wins, losses = test.count_wins(self.table.measure)
                cell = Cell(f"{wins} : {losses}", order=wins - losses)
            row = [Cell(self._name_pair(pair), note), self._show_gap(gap)]
            row.append(Cell(say("untested"), df))
            if gap.ends and gap.difference is not None:
                row[-1] = Cell(self.interval(*gap.ends), df, gap.ends[0])
                text = f"{words.format_points(gap.difference)} ({row[-1].text})"
                intervals.append((row[0].text, text, gap.difference, *gap.ends))
            p = DASH if gap.p_holm is None else words.format_p_cell(gap.p_holm)
            rows.append((*row, Cell(p, order=gap.p_holm), cell))
        yield Table("", head, tuple(rows))
        if intervals:
            drawn = {"axis": say("difference_axis"), "intervals": tuple(intervals)}
            yield Block(plots=(blocks.Plot("differences", self.lead, **drawn),), kind="wide")

    def show_items(self) -> Iterator[Block | Table]:
        """Yield the first items that two runs of a pair differ in, with both answers."""
        is_grid = self.table.axes or self.table.is_of_methods
        for pair in () if is_grid else self.comparison.pairs[:MAX_PAIRS]:
            sides = [one for name in (pair.first, pair.second) for one in self.table.select(name)]
            a, b = (one.items for one in sides) if pair.num_tested else (None, None)
            if a is None or b is None or not sides[0].answers:
                continue
            rows: list[tuple[Cell, ...]] = []
            unlike = np.flatnonzero(a.values != b.values).tolist()
            for place in unlike[:MAX_ITEMS]:
                item, truth = a.ids[place], a.labels[place] if a.labels else None
                row = [Cell(item[:8], hint=item), Cell(truth or DASH)]
                for side, items in zip(sides, (a, b), strict=True):
                    answer, value = side.answers.get(item), float(items.values[place])
                    mark = "✓" if (value == 1) == self.table.measure.is_higher_better else "✗"
                    mark = mark if value in (0, 1) else words.format_coefficient(value)
                    row.append(Cell((answer.text if answer else "") or DASH, mark))
                rows.append(tuple(row))
            yield Block(self.say("discordant_lead", shown=len(rows), all=len(unlike)))
            head = (*self.say_each("item", "truth"), pair.first, pair.second)
            yield Table(self._name_pair(pair), head, tuple(rows), kind="wrap items")


def show_value(one: Result) -> Cell:
    """Return the value of a cell, ``?`` where it has not run, a dash where it has none."""
    if one.value is None:
        return Cell(DASH if one.state == "inapplicable" else NOT_RUN, hint=one.error)
    ends = ""
    if one.low is not None and one.high is not None:
        ends = words.format_share_interval(one.low, one.high)
    return Cell(words.format_share(one.value), ends, one.value)


def show_points(value: float | None, note: str = "") -> Cell:
    """Return a difference of shares in points with its arrow, ``?`` where there is none."""
    if value is None:
        return Cell(NOT_RUN, note)
    points = words.format_points(value)
    arrow = {"+": "⬆️", MINUS: "⬇️"}.get(points[0], "➡️")
    return Cell(f"{points}{NBSP}{arrow}", note, value)


def _show_trend(gaps: Sequence[Gap], place: int) -> Cell:
    """Return the mean change from the first to the last epoch, ``?`` where other cells have run."""
    first, *_, last = dict.fromkeys(gap.cell[place] for gap in gaps)
    ends = [[gap.difference for gap in gaps if gap.cell[place] == x] for x in (first, last)]
    known = [(one, two) for one, two in zip(*ends, strict=True) if (one, two) != (None, None)]
    changes = [two - one for one, two in known if one is not None and two is not None]
    return show_points(fmean(changes) if len(changes) == len(known) > 0 else None)
