"""The page of a comparison: what it says, in the words of one language; HTML, Markdown and JSON."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from groupwise.core import write_json
from groupwise.evaluation import page
from groupwise.evaluation.comparison.content import Comparison
from groupwise.evaluation.comparison.grids import (
    tabulate_axes,
    tabulate_differences,
    tabulate_summary,
    tabulate_values,
)
from groupwise.evaluation.comparison.material import SideRow
from groupwise.evaluation.comparison.plots import plot_curves, plot_forests
from groupwise.evaluation.comparison.tables import (
    tabulate_discordant,
    tabulate_epochs,
    tabulate_results,
    tabulate_sides,
)
from groupwise.evaluation.page import (
    Block,
    Box,
    Bullets,
    Fold,
    Heading,
    Language,
    Notice,
    Page,
    Paragraph,
    Part,
    Plots,
    Tables,
    Words,
    mark_code,
    pick_color,
)
from groupwise.evaluation.report.tables import Section

NAME = "comparison"


@dataclass(frozen=True, slots=True)
class Written:
    """The paths of the three forms of a report."""

    html: Path
    markdown: Path
    data: Path


def write_comparison(comparison: Comparison, folder: Path, *, language: Language = "en") -> Written:
    """Write ``comparison.html``, ``.md`` with its plots, and ``.json`` into a folder."""
    html, markdown = page.write_page(lay_out(comparison, language), folder, name=NAME)
    data = folder / f"{NAME}.json"
    write_json(data, asdict(comparison))
    return Written(html, markdown, data)


def render_html(comparison: Comparison, *, language: Language = "en") -> str:
    """Return the comparison as one HTML page with its style and plots inside."""
    return page.render_html(lay_out(comparison, language))


def render_markdown(comparison: Comparison, *, language: Language = "en") -> str:
    """Return the comparison as Markdown; its plots are files in ``comparison/``."""
    return page.render_markdown(lay_out(comparison, language), folder=NAME)


def choose_words(comparison: Comparison, language: Language) -> Words:
    """Return the words for a comparison."""
    axes = tuple(axis.key for axis in comparison.axes)
    return Words(language, comparison.system_axis, axes)


def tell_comparison(comparison: Comparison, *, language: Language = "en") -> Iterator[str]:
    """Yield the lines a terminal shows: warnings, findings, and the recommendation."""
    words = choose_words(comparison, language)
    for one in comparison.notices:
        yield f"{words.label(f'level_{one.level}')}: {words.say(one)}"
    yield from _group_findings(comparison, words)
    yield title_recommendation(comparison, words)
    for one in comparison.recommendation.reasons:
        yield f"- {words.say(one)}"


def _group_findings(comparison: Comparison, words: Words) -> list[str]:
    """Return the findings as paragraphs: one per pair, and what is not about a pair first."""
    found: dict[tuple[str, str], list[page.Statement]] = {}
    for one in comparison.findings:
        pair = str(one.values.get("first", "")), str(one.values.get("second", ""))
        found.setdefault(pair, []).append(one)
    return [words.say_all(said) for said in found.values()]


def title_recommendation(comparison: Comparison, words: Words) -> str:
    """Return ``Recommended: NAME`` or that none is."""
    name = comparison.recommendation.system
    if name is None:
        return words.label("no_recommendation")
    return words.label("recommended", name=words.title_system(name))


def lay_out(comparison: Comparison, language: Language = "en") -> Page:
    """Return the page of a comparison."""
    words = choose_words(comparison, language)
    colors = [pick_color(index) for index in range(len(comparison.systems))]
    titles = map(words.title_system, comparison.names)
    shown = {
        "results": _show_results(comparison, words, colors),
        "settings": _show_settings(comparison, words),
        "data": _show_sides(comparison.data, comparison, words, "data_lead", "no_settings"),
        "training": _show_training(comparison, words),
        "grids": _show_grids(comparison, words),
        "differences": _show_differences(comparison, words),
        "discordant": _show_discordant(comparison, words),
        "own_reports": _show_sections(comparison, words),
    }
    return Page(
        title=comparison.title,
        lead=f"{words.title_measure(comparison.measure)} · {comparison.split}",
        language=language,
        notices=tuple(Notice(one.level, words.say(one)) for one in comparison.notices),
        checked=words.label("what_was_checked"),
        legend=tuple(zip(colors, titles, strict=True)),
        boxes=_list_boxes(comparison, words),
        parts=tuple(
            Part(name, words.label(name), tuple(blocks)) for name, blocks in shown.items() if blocks
        ),
        footer=_list_sources(comparison, words),
        is_sortable=True,
    )


def _list_boxes(comparison: Comparison, words: Words) -> tuple[Box, Box]:
    findings = tuple(_group_findings(comparison, words))
    reasons = tuple(map(words.say, comparison.recommendation.reasons))
    kind = "verdict" if comparison.recommendation.system is None else "verdict yes"
    return (
        Box("findings", findings, words.label("findings")),
        Box(kind, (), title_recommendation(comparison, words), reasons),
    )


def _list_sources(comparison: Comparison, words: Words) -> tuple[Block, ...]:
    folders = tuple(mark_code(name) for one in comparison.systems for name in one.folders)
    if not folders:
        return (Paragraph(words.label("footer_cells"), ""),)
    return (
        Fold(words.label("sources"), (Bullets(folders),)),
        Paragraph(words.label("footer"), ""),
    )


def _show_results(comparison: Comparison, words: Words, colors: Sequence[str]) -> list[Block]:
    measure = words.title_measure(comparison.measure)
    lead = words.label("results_lead", measure=measure, split=comparison.split)
    return [Paragraph(lead), tabulate_results(comparison, words, colors)]


def _show_settings(comparison: Comparison, words: Words) -> list[Block]:
    different = [row for row in comparison.configuration if row.kind is not None]
    same = [row for row in comparison.configuration if row.kind is None]
    none = "none_differ" if comparison.configuration else "no_settings"
    blocks = _show_sides(different, comparison, words, "settings_lead", none)
    if same:
        table = tabulate_sides(comparison, words, same)
        blocks.append(Fold(words.label("same_settings", num=len(same)), (table,)))
    return blocks


def _show_sides(
    rows: Sequence[SideRow], comparison: Comparison, words: Words, lead: str, none: str
) -> list[Block]:
    table = tabulate_sides(comparison, words, rows)
    return [Paragraph(words.label(lead)), table if rows else Paragraph(words.label(none), "absent")]


def _show_training(comparison: Comparison, words: Words) -> list[Block]:
    blocks: list[Block] = []
    if comparison.curves:
        plots = Plots(tuple(plot_curves(comparison, words)))
        blocks += [Paragraph(words.label("training_lead")), plots]
    if comparison.epochs:
        tables = tabulate_epochs(comparison, words)
        blocks += [Heading(words.label("last_values")), *tables]
    return blocks


def _show_grids(comparison: Comparison, words: Words) -> list[Block]:
    if not comparison.axes:
        return []
    tables = _place(tabulate_values(comparison, words), num_columns=5)
    return [Paragraph(words.label("grids_lead")), tables]


def _place(tables: tuple[page.Table, ...], *, num_columns: int) -> Tables:
    """Return tables side by side, below each other if they have more columns than these."""
    return Tables(tables, is_wide=len(tables[0].head) > num_columns)


def _show_differences(comparison: Comparison, words: Words) -> list[Block]:
    if not comparison.versus:
        return []
    lead = "differences_lead" if comparison.is_fair else "differences_lead_confounded"
    blocks: list[Block] = [Paragraph(words.label(lead))]
    if comparison.axes:
        blocks.append(_place(tabulate_differences(comparison, words), num_columns=5))
        blocks.append(Heading(words.label("summary")))
    blocks.append(tabulate_summary(comparison, words))
    if comparison.axes:
        blocks += [Heading(words.label("by_axis")), Paragraph(words.label("by_axis_lead"))]
        blocks.append(_place(tabulate_axes(comparison, words), num_columns=3))
    if forests := tuple(plot_forests(comparison, words)):
        blocks += [Heading(words.label("forest")), Paragraph(words.label("forest_lead"))]
        blocks.append(Plots(forests, "forest"))
    return blocks


def _show_sections(comparison: Comparison, words: Words) -> list[Block]:
    return [
        Fold(words.title_system(name), tuple(_list_blocks(sections, words)))
        for name, sections in comparison.sections.items()
    ]


def _list_blocks(sections: Sequence[Section], words: Words) -> Iterator[Block]:
    for section in sections:
        if section.language in (None, words.language):
            yield Heading(section.title)
            yield from (Paragraph(text) for text in (section.text,) if text)
            yield from section.tables


def _show_discordant(comparison: Comparison, words: Words) -> list[Block]:
    found = tabulate_discordant(comparison, words)
    if len(found) == 1:
        ((lead, table),) = found
        return [Paragraph(lead), table]
    return [Fold(lead, (table,)) for lead, table in found]
