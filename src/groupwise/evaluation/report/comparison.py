"""The page of a comparison: of runs, of methods over seeds, of a sweep.

Warnings first, then what the numbers say, a recommendation or the reasons for none, and tables;
HTML, Markdown and JSON of the same data, in English and Chinese. Nothing is computed here but means
over cells.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from pydantic_core import to_jsonable_python

from groupwise.core import write_json
from groupwise.evaluation.compare import Comparison, Gap, Pair
from groupwise.evaluation.methods import MethodDifference
from groupwise.evaluation.predictions import Language
from groupwise.evaluation.report import page as blocks
from groupwise.evaluation.report import phrases as words
from groupwise.evaluation.report.page import Block, Cell, Table
from groupwise.evaluation.report.phrases import DASH, MINUS, NBSP, Phrases, Statement
from groupwise.evaluation.result_table import Coordinates, Result

NOT_RUN, OTHER_ITEMS, STAR = "?", "≠", f"{NBSP}★"
MAX_PAIRS, MAX_ITEMS = 6, 20
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
    table, pairs = comparison.table, comparison.pairs
    known = [one for one in comparison.cells if one.value is not None]
    if known and not table.axes:
        reached = [(one.system, one.value) for one in known]
        values = {"measure": table.measure, "split": table.split, "reached": reached}
        yield Statement("finding.values", values)
    for pair in pairs[:MAX_PAIRS]:
        named: dict[str, Any] = {"first": pair.first, "second": pair.second}
        gap = pair.gaps[0]
        if pair.mean is None:
            why = Statement(f"why.{gap.why_none}")
            yield Statement("finding.not_compared", named | {"why": why})
        elif table.axes:
            named |= dict(zip(("better", "worse", "equal"), pair.counts, strict=True))
            named |= dict(zip(("clearly_better", "clearly_worse"), pair.clear, strict=True))
            named |= {"num_cells": len(pair.gaps), "num_compared": sum(pair.counts)}
            named |= {"mean": pair.mean, "num_tested": pair.num_tested}
            yield Statement("finding.grid", named)
        else:
            ending = Statement("ending.none" if gap.ends is None else "ending.close")
            if gap.is_clear:
                is_first = table.measure.sign * (gap.difference or 0.0) > 0
                better = pair.first if is_first else pair.second
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
    phrases = Phrases(language, policies=comparison.table.policies, own=own)
    layout = ComparisonLayout(comparison, phrases)
    table, say, name = comparison.table, layout.phrases.say, comparison.recommended
    findings = tuple(map(layout.say, list_findings(comparison)))
    boxes = [blocks.Box("findings", findings, say("findings"))]
    title = "recommended" if table.is_of_methods else "recommended_checkpoint"
    title = say(title, name=layout.titles[name]) if name is not None else say("no_recommendation")
    kind = "verdict" if name is None else "verdict yes"
    boxes.append(blocks.Box(kind, (), title, tuple(map(layout.say, comparison.reasons))))
    folders = dict.fromkeys(words.mark_code(x.folder) for x in table.results if x.folder)
    sources = Block(say("sources"), "fold", blocks=(Block(points=tuple(folders)),))
    parts = {
        "results": layout.show_results(),
        "values": layout.show_grids(),
        "differences": layout.show_differences(),
        "sides": layout.show_sides(),
        "discordant": layout.show_items(),
        "training": layout.show_training(),
        "own_reports": layout.show_sections(),
    }
    return blocks.Page(
        title=table.title,
        lead=layout.title_measure(),
        language=language,
        notices=tuple(blocks.Notice(x.level, layout.say(x)) for x in comparison.notices),
        checked=say("comparison_checked"),
        boxes=tuple(boxes),
        parts=tuple(blocks.Part(x, say(x), tuple(own)) for x, own in parts.items() if own),
        footer=(*([sources] if folders else []), Block(say("comparison_footer"), "plain")),
        is_sortable=True,
    )


class ComparisonLayout:
    """The blocks of a comparison in the words of one language."""

    def __init__(self, comparison: Comparison, phrases: Phrases) -> None:
        self.comparison, self.table, self.phrases = comparison, comparison.table, phrases
        self.names = self.table.systems
        # Values of an axis are shown with the last part of its key.
        axis = self.table.system_axis.rpartition(".")[2]
        self.titles = {x: f"{axis} {x}" if axis else phrases.title_policy(x) for x in self.names}
        keys = (axis.key.rpartition(".")[2] for axis in self.table.axes)
        self.axes = [phrases.title("axis", key) for key in keys]

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
            elif key == "reached":
                shown = (f"{self.titles[name]} {words.format_share(x)}" for name, x in value)
                values[key] = self.phrases.join(shown)
            elif key == "at":
                values[key] = self.place_after(value)
            elif key == "axis":
                values[key] = value.rpartition(".")[2]
            elif key == "why" and isinstance(value, Mapping):
                why = value[language]  # A clause; a key or a run at its start keeps its letters.
                first = why.split(" ", 1)[0]
                is_word = first.isalpha() and first not in self.names
                values[key] = why[:1].upper() + why[1:] if is_word else why
            elif key == "sides":
                against = " 对 " if language == "zh" else " against "
                values[key] = against.join(one or NOT_RUN for one in value)
            elif isinstance(value, Statement):
                values[key] = self.say(value)
        return self.phrases.say(statement.kind, **values)

    def place_after(self, cell: Coordinates) -> str:
        """Return `` (epoch 1, size 200)``; empty without axes."""
        brackets = "（{}）" if self.phrases.language == "zh" else " ({})"
        parts = (f"{axis} {value}" for axis, value in zip(self.axes, cell, strict=True))
        return brackets.format(self.phrases.join(parts)) if cell else ""

    def name_pair(self, pair: Pair) -> str:
        """Return ``first − second``, with the axis of systems named once."""
        second = pair.second if self.table.system_axis else self.titles[pair.second]
        return f"{self.titles[pair.first]} {MINUS} {second}"

    def show_results(self) -> list[Block | Table]:
        """Return a row per system, with a value per seed."""
        say_each, axes, seeds = self.phrases.say_each, self.table.axes, list[int]()
        if self.table.is_of_methods and not axes:
            seeds = sorted({one.seed for one in self.table.results if one.value is not None})
        head = say_each("system", "mean" if seeds or axes else "value")
        head += tuple(self.phrases.say("seed_of", seed=seed) for seed in seeds)
        head += say_each("invalid", "n_items", "digest")
        rows: list[tuple[Cell, ...]] = []
        for name in self.names:
            results = [one for one in self.table.results if one.system == name]
            cells = [one for one in self.comparison.cells if one.system == name]
            known = [one for one in cells if one.value is not None]
            note = "" if name.endswith(results[0].policy) else results[0].policy
            row = [Cell(self.titles[name], note, is_strong=self.comparison.recommended == name)]
            mean = _average(one.value for one in known)
            note = self.phrases.say("over", part=len(known), all=len(cells))
            note = note if axes else _show_interval(cells[0])
            row.append(
                show_value(cells[0]) if mean is None else Cell(words.format_share(mean), note, mean)
            )
            shares = [dict(cells[0].seeds).get(seed) for seed in seeds]
            shares.append(_average(one.invalid_rate for one in known))
            row += [_show(share, words.format_share) for share in shares]
            sizes = sorted({one.n for one in results if one.n is not None})
            ends = DASH.join(map(words.format_count, dict.fromkeys(sizes[:1] + sizes[-1:])))
            clusters = min((one.num_clusters for one in results if one.num_clusters), default=0)
            note = self.phrases.count(clusters, "cluster") if clusters else ""
            row.append(Cell(ends or DASH, note, sizes[0] if sizes else None))
            digests = sorted({one.digest[:8] for one in results if one.digest})
            more = f" +{len(digests) - 1}" if digests[1:] else ""
            row.append(Cell(digests[0] + more if digests else DASH, is_code=bool(digests)))
            rows.append(tuple(row))
        table = Table("", head, tuple(rows), kind="headline")
        return [Block(self.phrases.say("results_lead")), table]

    def show_sides(self) -> list[Block | Table]:
        """Return what differs in settings and data, and why that is so; folded what is the same."""
        say, head = self.phrases.say, (self.phrases.say("setting"), *self.titles.values())
        tables: dict[bool, list[tuple[Cell, ...]]] = {True: [], False: []}
        told = ""
        for row in self.table.sides:
            why, kind = row.why.get(self.phrases.language, ""), row.kind or ""
            title = Cell(f"{row.aspect}/{row.key}", "" if why == told else why, is_code=True)
            title, told = replace(title, tag=kind and say(f"kind.{kind}"), tag_kind=kind), why
            values = (Cell(say("not_recorded") if one is None else one) for one in row.values)
            tables[row.kind is not None].append((title, *values))
        unlike, same = (Table("", head, tuple(rows), kind="wrap sides") for rows in tables.values())
        found: list[Block | Table] = [Block(say("sides_lead")), unlike] if unlike.rows else []
        fold = Block(say("same_sides", num=len(same.rows)), "fold", blocks=(same,))
        return [*found, fold] if same.rows else found

    def show_training(self) -> list[Block | Table]:
        """Return the first values and the last of every epoch, a table for each training step."""
        title, found = self.phrases.title, list[Block | Table]()
        for step in dict.fromkeys(row.step for row in self.table.epochs):
            here = [row for row in self.table.epochs if row.step == step]
            keys = list(dict.fromkeys(key for row in here for key in row.values))
            head = (*self.phrases.say_each("system", "epoch"), *(title("series", x) for x in keys))
            rows = [
                (
                    Cell(self.titles[row.system]),
                    Cell(str(row.epoch or self.phrases.say("first")), order=row.epoch),
                    *(_show(row.values.get(key), words.format_plain) for key in keys),
                )
                for row in here
            ]
            name = f"{self.phrases.say('last_values')} · {step}"
            found.append(Table(name, head, tuple(rows), num_heads=2))
        return found

    def show_grids(self) -> list[Block | Table]:
        """Return a grid of values per system."""
        if not self.table.axes:
            return []
        shown = {name: dict[Coordinates, Cell]() for name in self.names}
        for one in self.comparison.cells:
            shown[one.system][one.cell] = show_value(one)
        tables = [self._tabulate_grid(self.titles[name], own) for name, own in shown.items()]
        return [Block(self.phrases.say("grids_lead")), Block(tables=tuple(tables))]

    def _tabulate_grid(self, title: str, shown: Mapping[Coordinates, Cell]) -> Table:
        """Return a grid with the last axis as columns."""
        last = self.table.axes[-1].values
        heads = (*self.axes[:-1], *(f"{self.axes[-1]} {x}" for x in last))
        starts = dict.fromkeys(cell[:-1] for cell in shown)
        rows = tuple((*map(Cell, x), *(shown[*x, value] for value in last)) for x in starts)
        return Table(title, heads, rows, len(self.axes) - 1, "heat")

    def show_differences(self) -> list[Block | Table]:
        """Return each pair's test and interval; of a grid means by axis, and every cell."""
        pairs, say = self.comparison.pairs, self.phrases.say
        if not pairs:
            return []
        found: list[Block | Table] = [Block(say("differences_lead"))]
        if self.table.axes:
            grids = [
                self._tabulate_grid(
                    self.name_pair(pair), {x.cell: self._show_gap(x) for x in pair.gaps}
                )
                for pair in pairs
            ]
            every = Block(say("every_cell"), "heading"), Block(tables=tuple(grids))
            return [*found, self._tabulate_means(), *every]
        found.append(self._tabulate_tests())
        tested = [(pair, pair.gaps[0]) for pair in pairs if pair.gaps[0].ends]
        intervals: list[blocks.Interval] = []
        for pair, gap in tested:
            ends, difference = gap.ends or (0.0, 0.0), gap.difference or 0.0
            text = f"{words.format_points(difference)} ({self.phrases.interval(*ends)})"
            intervals.append(blocks.Interval(self.name_pair(pair), text, difference, *ends))
        plot = blocks.Plot("differences", self.title_measure(), axis=say("difference_axis"))
        plots = (replace(plot, intervals=tuple(intervals)),)
        return [*found, Block(plots=plots, kind="wide")] if intervals else found

    def _show_gap(self, gap: Gap) -> Cell:
        """Return a difference, marked if it is clear and the comparison fair."""
        if gap.difference is None:
            return Cell(_NO_GAP[gap.why_none])
        is_strong = gap.is_clear and self.table.is_fair is not False
        note = self.phrases.interval(*gap.ends) if gap.ends and self.table.axes else ""
        shown = show_points(gap.difference, note)
        return replace(shown, text=shown.text + STAR * is_strong, is_strong=is_strong)

    def _tabulate_tests(self) -> Table:
        """Return per pair a row of difference, interval, p and what it rests on."""
        say, last = self.phrases.say, "seed_share" if self.table.is_of_methods else "won_lost"
        head = ("pair", "difference", "interval", "p_holm", last)
        rows: list[tuple[Cell, ...]] = []
        for pair in self.comparison.pairs:
            (gap,) = pair.gaps
            test, note, df, cell = gap.test, "", "", Cell(DASH)
            if isinstance(test, MethodDifference):
                note = say("paired_by_seed" if test.is_paired else "not_paired")
                cell = _show(test.seed_share, words.format_share)
                if test.seed_share is not None:  # The rest is of clusters.
                    rest = say("of_clusters", share=1 - test.seed_share)
                    cell, df = replace(cell, note=rest), f"df {test.df:.1f}"
            elif test is not None:
                wins, losses = test.count_wins(self.table.measure)
                cell = Cell(f"{wins} : {losses}", order=wins - losses)
            ends = self.phrases.interval(*gap.ends) if gap.ends else say("untested")
            interval = Cell(ends, df, gap.ends[0] if gap.ends else None)
            p = _show(gap.p_holm, words.format_p_cell)
            first = Cell(self.name_pair(pair), note)
            rows.append((first, self._show_gap(gap), interval, p, cell))
        return Table("", self.phrases.say_each(*head), tuple(rows))

    def _tabulate_means(self) -> Table:
        """Return by pair the mean difference of all cells and by the values of each axis."""
        pairs, say, sign = self.comparison.pairs, self.phrases.say, self.table.measure.sign
        titles = list(map(self.name_pair, pairs))
        columns: dict[str, dict[str, Cell]] = {title: {} for title in titles}
        columns |= {f"{say('trend')}\n{title}": {} for title in titles}
        for pair, title in zip(pairs, titles, strict=True):
            gains = [sign * gap.difference for gap in pair.gaps if gap.difference is not None]
            over = say("over", part=len(gains), all=len(pair.gaps))
            clear = say("of", part=sum(pair.clear), all=pair.num_tested)
            own, trends = columns[title], columns[f"{say('trend')}\n{title}"]
            own[say("mean")] = show_points(pair.mean, over)
            own[say("best_gain")] = show_points(sign * max(gains) if gains else None)
            own[say("worst_loss")] = show_points(sign * min(gains) if gains else None)
            own[say("better_worse_equal")] = Cell(" : ".join(map(str, pair.counts)))
            own[say("survive")] = Cell(clear if pair.num_tested else say("untested"))
            parts = zip(self.axes, self.table.axes, pair.by_axis, pair.trends, strict=True)
            for name, axis, means, trend in parts:
                for one in means:
                    over = say("over", part=one.num_compared, all=one.num_cells)
                    own[f"{name} {one.value}"] = show_points(one.mean, over)
                    if not axis.has_epochs and any(x.has_epochs for x in self.table.axes):
                        trends[f"{name} {one.value}"] = show_points(one.trend)
                if axis.has_epochs:
                    own[say("trend")] = show_points(trend)
        shown = {title: own for title, own in columns.items() if own}
        rows = tuple(
            (Cell(label), *(own.get(label, Cell("")) for own in shown.values()))
            for label in columns[titles[0]]
        )
        return Table("", (say("by_axis"), *shown), rows)

    def show_items(self) -> list[Block | Table]:
        """Return the first items that two runs of a pair differ in, with both answers."""
        say, found = self.phrases.say, list[Block | Table]()
        is_grid = self.table.axes or self.table.is_of_methods
        for pair in () if is_grid else self.comparison.pairs[:MAX_PAIRS]:
            sides = [one for name in (pair.first, pair.second) for one in self.table.select(name)]
            a, b = (one.items for one in sides) if pair.num_tested else (None, None)
            if a is None or b is None or not sides[0].answers:
                continue
            rows: list[tuple[Cell, ...]] = []
            unlike = np.flatnonzero(a.values != b.values).tolist()
            for place in unlike[:MAX_ITEMS]:
                row = [Cell(a.ids[place][:8], hint=a.ids[place])]
                row.append(Cell((a.labels[place] if a.labels else None) or DASH))
                for side, items in zip(sides, (a, b), strict=True):
                    answer = side.answers.get(a.ids[place])
                    text = answer.text if answer else ""
                    row.append(Cell(text or DASH, self._mark(float(items.values[place]))))
                rows.append(tuple(row))
            lead = Block(say("discordant_lead", shown=len(rows), all=len(unlike)))
            head = (*self.phrases.say_each("item", "truth"), pair.first, pair.second)
            found += [lead, Table(self.name_pair(pair), head, tuple(rows), kind="wrap items")]
        return found

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
                    text = [Block(one.text)] if one.text else []
                    own += [Block(one.title, "heading"), *text, *one.tables]
            found.append(Block(self.titles[name], "fold", blocks=tuple(own)))
        return found


def show_value(one: Result) -> Cell:
    """Return the value of a cell, ``?`` where it has not run, a dash where it has none."""
    if one.value is None:
        return Cell(DASH if one.state == "inapplicable" else NOT_RUN, hint=one.error)
    return Cell(words.format_share(one.value), _show_interval(one), one.value)


def show_points(value: float | None, note: str = "") -> Cell:
    """Return a difference of shares in points with its arrow, ``?`` where there is none."""
    if value is None:
        return Cell(NOT_RUN, note)
    points = words.format_points(value)
    arrow = {"+": "⬆️", MINUS: "⬇️"}.get(points[0], "➡️")
    return Cell(f"{points}{NBSP}{arrow}", note, value)


def _show(value: Any, form: Callable[..., str], **named: Any) -> Cell:
    return Cell(DASH if value is None else form(value, **named), order=value)


def _average(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _show_interval(one: Result) -> str:
    if one.low is None or one.high is None:
        return ""
    return words.format_share_interval(one.low, one.high)
