"""The page of methods: a value per seed, the differences, and a dot per seed and method."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from groupwise.core import write_json
from groupwise.evaluation.page import (
    DASH,
    Box,
    Bullets,
    Cell,
    Fold,
    Language,
    Notice,
    Page,
    Paragraph,
    Part,
    Plot,
    Plots,
    Table,
    Words,
    mark_code,
    numbers,
    pick_color,
    shorten,
    write_page,
)
from groupwise.evaluation.page.canvas import INK, Axes, make_percent_axis
from groupwise.evaluation.seeds.content import MethodPair, MethodReport, MethodRow

NAME = "methods"
_WIDTH = 4.6
_MAX_TITLE = 40


def write_methods(report: MethodReport, folder: Path, *, language: Language = "en") -> Path:
    """Write ``methods.html``, ``.md`` with its plot, and ``.json``; return the path of the HTML."""
    html, _ = write_page(lay_out(report, language), folder, name=NAME)
    write_json(folder / f"{NAME}.json", asdict(report))
    return html


def tell_methods(report: MethodReport, *, language: Language = "en") -> Iterator[str]:
    """Yield the lines a terminal shows: warnings and findings."""
    words = Words(language, policies=report.policies)
    for one in report.notices:
        yield f"{words.label(f'level_{one.level}')}: {words.say(one)}"
    yield from map(words.say, report.findings)


def lay_out(report: MethodReport, language: Language = "en") -> Page:
    """Return the page of a report of methods."""
    words = Words(language, policies=report.policies)
    plot = _plot_seeds(report, words)
    blocks = {
        "methods": (Paragraph(words.label("methods_lead")), _tabulate_methods(report, words)),
        "differences": (
            Paragraph(words.label("methods_gaps_lead")),
            _tabulate_pairs(report, words),
        ),
        "seeds": (Plots((plot,), "forest"),),
    }
    folders = dict.fromkeys(mark_code(name) for row in report.methods for name in row.folders)
    return Page(
        title=report.title,
        lead=f"{words.title_measure(report.measure)} · {report.split}",
        language=language,
        notices=tuple(Notice(one.level, words.say(one)) for one in report.notices),
        checked=words.label("methods_checked"),
        boxes=(Box("findings", tuple(map(words.say, report.findings)), words.label("findings")),),
        parts=tuple(Part(name, words.label(name), part) for name, part in blocks.items() if part),
        footer=(
            Fold(words.label("sources"), (Bullets(tuple(folders)),)),
            Paragraph(words.label("methods_footer"), ""),
        ),
        is_sortable=True,
    )


def _tabulate_methods(report: MethodReport, words: Words) -> Table:
    """Return a row per method: mean, range, number of seeds and the value of each seed.

    A policy that the measure is none of has dashes.
    """
    seeds = sorted({seed for row in report.methods for seed in row.seeds})
    head = words.labels("method", "mean", "range", "n_seeds")
    shown = {row.name: _show_method(row, seeds, words) for row in report.methods}
    dashes = (Cell(DASH),) * (len(head) - 1 + len(seeds))
    shown |= {name: (Cell(words.title_policy(name)), *dashes) for name in report.inapplicable}
    return Table(
        "",
        (*head, *(words.label("seed_of", seed=seed) for seed in seeds)),
        tuple(shown[name] for name in words.policies.sort(shown)),
        kind="headline",
    )


def _show_method(row: MethodRow, seeds: Sequence[int], words: Words) -> tuple[Cell, ...]:
    values = dict(zip(row.seeds, row.values, strict=True))
    policy = "" if row.policy == row.name else row.policy
    return (
        Cell(words.title_policy(row.name), note=policy),
        Cell(numbers.format_share(row.mean), order=row.mean),
        Cell(numbers.format_share_interval(row.lowest, row.highest), order=row.lowest),
        Cell(str(len(row.seeds)), order=len(row.seeds)),
        *(Cell(numbers.format_share(values.get(seed)), order=values.get(seed)) for seed in seeds),
    )


def _tabulate_pairs(report: MethodReport, words: Words) -> Table:
    """Return a row per difference; the interval for the method stands first."""
    heads = ("pair", "interval_method", "difference", "p_value", "p_holm", "degrees")
    more = ("seed_share", "cluster_share", "seeds_needed", "items_needed")
    rows = tuple(_show_pair(pair, words) for pair in report.pairs)
    return Table("", words.labels(*heads, *more), rows)


def _show_pair(pair: MethodPair, words: Words) -> tuple[Cell, ...]:
    found = pair.found
    title = f"{words.title_policy(pair.first)} \u2212 {words.title_policy(pair.second)}"
    note = words.label("paired_by_seed" if found.is_paired else "not_paired")
    ends = None if found.low is None or found.high is None else (found.low, found.high)
    share = found.seed_share
    return (
        Cell(title, note=note, is_strong=pair.is_clear),
        Cell(words.interval(*ends) if ends else DASH, order=found.low),
        Cell(numbers.format_points(found.estimate), order=found.estimate),
        _show_p(found.p_value),
        _show_p(pair.p_value_holm),
        Cell(DASH if found.df is None else f"{found.df:.1f}", order=found.df),
        Cell(numbers.format_share(share), order=share),
        Cell(numbers.format_share(None if share is None else 1 - share), order=share),
        _show_count(found.seeds_needed),
        _show_count(found.items_needed),
    )


def _show_p(value: float | None) -> Cell:
    return Cell(DASH if value is None else numbers.format_p_cell(value), order=value)


def _show_count(value: int | None) -> Cell:
    return Cell(DASH if value is None else numbers.format_count(value), order=value)


def _plot_seeds(report: MethodReport, words: Words) -> Plot:
    title = f"{words.title_measure(report.measure)} · {report.split}"
    titles = [words.title_policy(row.name) for row in report.methods]
    told = [
        f"{name}: {words.join(map(numbers.format_share, row.values))}"
        for name, row in zip(titles, report.methods, strict=True)
    ]
    return Plot(
        name="seeds",
        title=title,
        alt="; ".join(told),
        draw=partial(_draw_seeds, report.methods, titles),
        size=(_WIDTH, 0.75 + 0.44 * len(titles)),
        caption=words.label("seeds_caption"),
    )


def _draw_seeds(rows: Sequence[MethodRow], titles: Sequence[str], axes: Axes) -> None:
    for place, (row, title) in enumerate(zip(rows, titles, strict=True)):
        color = pick_color(place)
        axes.plot(row.values, [place] * len(row.values), "o", color=color, alpha=0.7, ms=5.5)
        axes.plot([row.mean], [place], "|", color=INK, ms=14)
        label = {"transform": axes.get_yaxis_transform(), "va": "center", "fontsize": 8.5}
        axes.text(0, place - 0.42, shorten(title, _MAX_TITLE), ha="left", color=INK, **label)
        shown = numbers.format_share(row.mean)
        axes.text(1, place - 0.42, shown, ha="right", color=INK, **label)
    axes.xaxis.set_major_formatter(make_percent_axis())
    axes.set_ylim(len(rows) - 0.5, -0.8)
    axes.set(yticks=[])
    axes.spines["left"].set_visible(False)
