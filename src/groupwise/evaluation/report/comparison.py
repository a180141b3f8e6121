"""The page of a comparison: of runs, of methods over seeds, of a sweep, of published cells.

Warnings first, then what the numbers say, a recommendation or the reasons for none, tables and
curves; HTML, Markdown and JSON of the same data, in English and Chinese. Nothing is computed here
but means over cells.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import compress
from pathlib import Path
from statistics import fmean
from typing import Any

from pydantic_core import to_jsonable_python

from groupwise.core import write_json
from groupwise.evaluation.compare import Comparison, Gap, Pair
from groupwise.evaluation.methods import MethodDifference
from groupwise.evaluation.predictions import Language
from groupwise.evaluation.report import page as blocks
from groupwise.evaluation.report import phrases as words
from groupwise.evaluation.report.page import Block, Cell, Table
from groupwise.evaluation.report.phrases import DASH, MINUS, NBSP, Phrases, Statement
from groupwise.evaluation.result_table import Coordinates, Curve, Result
from groupwise.evaluation.statistics import PairedComparison

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
            won = few = ""
            if gap.is_clear:
                is_first = table.measure.sign * (gap.difference or 0.0) > 0
                better = pair.first if is_first else pair.second
                ending = Statement("ending.clear", {"better": better})
            if isinstance(gap.test, PairedComparison):
                wins, losses = gap.test.count_wins(table.measure)
                won = Statement("finding.won", {**named, "only_first": wins, "only_second": losses})
                num = round(gap.test.num_carrying or 0)
                is_on_few = gap.is_clear and gap.test.rests_on_few
                few = Statement("finding.rests_on_few", {"num": num}) if is_on_few else ""
            named |= {"difference": gap.difference, "interval": gap.state_interval()}
            yield Statement("finding.gap", named | {"ending": ending, "won": won, "few": few})
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
    sources = (
        [Block(say("sources"), "fold", blocks=(Block(points=tuple(folders)),))] if folders else []
    )
    parts = {
        "results": layout.show_results(),
        "values": layout.show_grids(),
        "differences": layout.show_differences(),
        "sides": layout.show_sides(),
        "discordant": layout.show_discordant(),
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
        footer=(*sources, Block(say("comparison_footer"), "plain")),
        is_sortable=True,
    )


class ComparisonLayout:
    """The blocks of a comparison in the words of one language."""

    def __init__(self, comparison: Comparison, phrases: Phrases) -> None:
        self.comparison, self.table, self.phrases = comparison, comparison.table, phrases
        self.names = self.table.systems
        self.colors = [blocks.pick_color(place) for place in range(len(self.names))]
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
                why = value[language]  # A clause; a key at its start keeps its letters.
                values[key] = why[:1].upper() + why[1:] if why.split(" ", 1)[0].isalpha() else why
            elif key == "pairs":
                against, between = (" 对 ", "；") if language == "zh" else (" against ", "; ")
                shown = [(name, against.join(x or NOT_RUN for x in own)) for name, own in value]
                values[key] = between.join(" ".join(one).strip() for one in shown)
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
        """Return a row per system, with the value of each seed."""
        say_each, axes, seeds = self.phrases.say_each, self.table.axes, list[int]()
        if self.table.is_of_methods:
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
            text = words.format_share(mean, decimals=_count_decimals(known))
            note = self.phrases.say("over", part=len(known), all=len(cells))
            shown = Cell(text, note if axes else _show_interval(cells[0]), mean)
            row.append(show_value(cells[0]) if mean is None else shown)
            shares = [_average(x.value for x in results if x.seed == seed) for seed in seeds]
            shares.append(_average(one.invalid_rate for one in known))
            row += [_show(share, words.format_share) for share in shares]
            sizes = sorted({one.n for one in results if one.n is not None})
            ends = DASH.join(map(words.format_count, dict.fromkeys(sizes[:1] + sizes[-1:])))
            clusters = min((one.num_clusters for one in results if one.num_clusters), default=0)
            note = self.phrases.count(clusters, "cluster") if clusters else ""
            row.append(Cell(ends or DASH, note, sizes[0] if sizes else None))
            digests = sorted({one.digest for one in results if one.digest})
            text = " ".join(one[:8] for one in digests[:1])
            text += f" +{len(digests) - 1}" if digests[1:] else ""
            row.append(Cell(text or DASH, hint=" ".join(digests), is_code=bool(digests)))
            rows.append(tuple(row))
        found: list[Block | Table] = [Block(self.phrases.say("results_lead"))]
        found.append(Table("", head, tuple(rows), kind="headline", marks=tuple(self.colors)))
        return found

    def show_sides(self) -> list[Block | Table]:
        """Return what differs in settings and data, and why that is so; folded what is the same."""
        say, head = self.phrases.say, (self.phrases.say("setting"), *self.titles.values())
        tables: dict[bool, list[tuple[Cell, ...]]] = {True: [], False: []}
        told = ""
        for row in self.table.sides:
            tag = say(f"kind.{row.kind}") if row.kind else ""
            named = {"tag": tag, "tag_kind": row.kind or "", "is_code": True}
            why = row.why.get(self.phrases.language, "")
            name = f"{row.aspect}/{row.key}" + (f".{row.part}" if row.part else "")
            title = Cell(name, "" if why == told else why, **named)
            told = why
            values = (Cell(say("not_recorded") if one is None else one) for one in row.values)
            tables[row.kind is not None].append((title, *values))
        unlike, same = (Table("", head, tuple(rows), kind="wrap sides") for rows in tables.values())
        found: list[Block | Table] = [Block(say("sides_lead")), unlike] if unlike.rows else []
        fold = Block(say("same_sides", num=len(same.rows)), "fold", blocks=(same,))
        return [*found, fold] if same.rows else found

    def show_training(self) -> list[Block | Table]:
        """Return curves with a line per system, and the last values of every epoch."""
        say, title, found = self.phrases.say, self.phrases.title, list[Block | Table]()
        series: dict[tuple[str, str], list[Curve]] = {}
        for one in self.table.curves:
            series.setdefault((one.step_name, one.key), []).append(one)
        drawn: list[blocks.Plot] = []
        for (step, key), own in series.items():
            lines = [
                blocks.Line(
                    self.titles[one.system],
                    one.steps,
                    one.mean,
                    self.colors[self.names.index(one.system)],
                )
                for one in own
            ]
            name = blocks.name_file("curve", step, key.replace("/", "-").replace("_", "-"))
            heading = say("plot_of", key=title("series", key), step=step)
            drawn.append(blocks.Plot(name, heading, tuple(lines), say("step")))
        if drawn:
            found += [Block(say("curves_lead")), Block(plots=tuple(drawn[:MAX_CURVES]))]
        for step in dict.fromkeys(row.step for row in self.table.epochs):
            here = [row for row in self.table.epochs if row.step == step]
            keys = list(dict.fromkeys(key for row in here for key in row.values))
            head = (*self.phrases.say_each("system", "epoch"), *(title("series", x) for x in keys))
            rows = [
                (
                    Cell(self.titles[row.system]),
                    Cell(str(row.epoch), order=row.epoch),
                    *(_show(row.values.get(key), words.format_plain) for key in keys),
                )
                for row in here
            ]
            name = say("last_values") + (f" · {step}" if step else "")
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
        """Return each pair's test; of a grid means by axis and every cell."""
        pairs, say = self.comparison.pairs, self.phrases.say
        if not pairs:
            return []
        found: list[Block | Table] = [Block(say("differences_lead"))]
        if self.table.axes:
            grids = [
                self._tabulate_grid(
                    self.name_pair(one),
                    {x.cell: self._show_gap(x, is_in_grid=True) for x in one.gaps},
                )
                for one in pairs
            ]
            grid = Block(tables=tuple(grids))
            return [*found, self._tabulate_means(), Block(say("every_cell"), "heading"), grid]
        return [*found, self._tabulate_tests()]

    def _show_gap(self, gap: Gap, *, is_in_grid: bool = False) -> Cell:
        """Return a difference, marked if it is clear and the comparison fair."""
        if gap.difference is None:
            return Cell(_NO_GAP[gap.why_none])
        is_strong = gap.is_clear and self.table.is_fair is not False
        note = self.phrases.interval(*gap.ends) if is_in_grid and gap.ends else ""
        shown = show_points(gap.difference, note)
        hint = words.format_p_value(gap.p_holm) if gap.p_holm is not None else ""
        text = shown.text + (STAR if is_strong else "")
        return replace(shown, text=text, hint=hint, is_strong=is_strong)

    def _tabulate_tests(self) -> Table:
        """Return per pair a row of difference, interval, p and what it rests on."""
        count, say = words.format_count, self.phrases.say
        more = (
            ("seed_share", "seeds_needed") if self.table.is_of_methods else ("effect", "won_lost")
        )
        head = ("pair", "difference", "interval", "p_holm", *more, "items_needed")
        rows: list[tuple[Cell, ...]] = []
        for pair in self.comparison.pairs:
            (gap,) = pair.gaps
            test, note, df, cells = gap.test, "", "", [Cell(DASH)] * 3
            if isinstance(test, MethodDifference):
                note = say("paired_by_seed" if test.is_paired else "not_paired")
                share = _show(test.seed_share, words.format_share)
                if test.seed_share is not None:  # The rest is of clusters.
                    rest = say("of_clusters", share=1 - test.seed_share)
                    share, df = replace(share, note=rest), f"df {test.df:.1f}"
                cells = [share, _show(test.seeds_needed, count), _show(test.items_needed, count)]
            elif test is not None:
                wins, losses = test.count_wins(self.table.measure)
                won = Cell(f"{wins} : {losses}", order=wins - losses)
                effect = test.effect_size and test.effect_size / 100
                effect = _show(effect, words.format_points, decimals=2)
                cells = [effect, won, _show(test.num_items_needed, count)]
            ends = self.phrases.interval(*gap.ends) if gap.ends else say("untested")
            interval = Cell(ends, df, gap.ends[0] if gap.ends else None)
            p = _show(gap.p_holm, words.format_p_cell)
            pair_cell = Cell(self.name_pair(pair), note)
            rows.append((pair_cell, self._show_gap(gap), interval, p, *cells))
        return Table("", self.phrases.say_each(*head), tuple(rows))

    def _tabulate_means(self) -> Table:
        """Return by pair the mean difference of all cells and by the values of each axis."""
        pairs, say = self.comparison.pairs, self.phrases.say
        titles = list(map(self.name_pair, pairs))
        has_epochs = any(one.has_epochs for one in self.table.axes)
        trends = titles if has_epochs and self.axes[1:] else []
        blank = [Cell("")] * len(trends)

        def show(mean: float | None, part: int, num: int) -> Cell:
            return show_points(mean, say("over", part=part, all=num))

        rows: list[list[Cell]] = [[Cell(say("mean"))], [Cell(say("better_worse_equal"))]]
        rows += [[Cell(say("survive"))]]
        for pair in pairs:
            rows[0].append(show(pair.mean, sum(pair.counts), len(pair.gaps)))
            rows[1].append(Cell(" : ".join(map(str, pair.counts))))
            clear = say("of", part=sum(pair.clear), all=pair.num_tested)
            rows[2].append(Cell(clear if pair.num_tested else say("untested")))
        rows = [[*row, *blank] for row in rows]
        for place, axis in enumerate(self.table.axes):
            for means in zip(*(pair.by_axis[place] for pair in pairs), strict=True):
                cells = [show(one.mean, one.num_compared, one.num_cells) for one in means]
                own = blank if axis.has_epochs else [show_points(x.trend) for x in means if trends]
                rows.append([Cell(f"{self.axes[place]} {means[0].value}"), *cells, *own])
            if axis.has_epochs:
                cells = [show_points(one.trends[place]) for one in pairs]
                rows.append([Cell(say("trend")), *cells, *blank])
        heads = (say("by_axis"), *titles, *(f"{say('trend')}\n{title}" for title in trends))
        return Table("", heads, tuple(map(tuple, rows)))

    def show_discordant(self) -> list[Block | Table]:
        """Return the items that the systems of each pair differ in, with both answers."""
        say, found = self.phrases.say, list[Block | Table]()
        for pair in [one for one in self.comparison.pairs if one.discordant][:MAX_PAIRS]:
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
            found += [Block(lead), Table("", head, shown, kind="wrap items")]
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
    text = words.format_share(one.value, decimals=_count_decimals([one]))
    hint = f"n = {words.format_count(one.n)}" if one.n else ""
    return Cell(text, _show_interval(one), one.value, hint)


def show_points(value: float | None, note: str = "") -> Cell:
    """Return a difference of shares in points with its arrow, ``?`` where there is none."""
    if value is None:
        return Cell(NOT_RUN, note)
    text = f"{words.format_points(value)}{words.NBSP}{words.choose_arrow(value)}"
    return Cell(text, note, value)


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
