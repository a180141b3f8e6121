"""Rendering a comparison: one HTML file that needs nothing else, Markdown with plots, and JSON.

Takes what a comparison says and lays it out; it changes no number and reads no file.
"""

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from groupwise.core import write_json, write_text
from groupwise.evaluation.comparison.content import Comparison, SideRow
from groupwise.evaluation.comparison.grids import (
    tabulate_axes,
    tabulate_differences,
    tabulate_summary,
    tabulate_values,
)
from groupwise.evaluation.comparison.plots import Panel, list_panels
from groupwise.evaluation.comparison.shown import Table
from groupwise.evaluation.comparison.tables import (
    tabulate_discordant,
    tabulate_epochs,
    tabulate_results,
    tabulate_sides,
)
from groupwise.evaluation.comparison.words import Language, Words, choose_words
from groupwise.evaluation.report.canvas import pick_color, render_svg
from groupwise.evaluation.report.rendering import escape_cell

NAME = "comparison"


@dataclass(frozen=True, slots=True)
class Tables:
    """Every table of the report."""

    results: Table
    settings: Table
    same_settings: Table
    data: Table
    epochs: Sequence[Table]
    values: Sequence[Table]
    differences: Sequence[Table]
    summary: Table
    axes: Sequence[Table]
    discordant: Sequence[tuple[str, Table]]


@dataclass(frozen=True, slots=True)
class Written:
    """The paths of the three forms of a report."""

    html: Path
    markdown: Path
    data: Path


def write_comparison(comparison: Comparison, folder: Path, *, language: Language = "en") -> Written:
    """Write ``comparison.html``, ``.md`` with its plots, and ``.json`` into a folder."""
    words = choose_words(comparison, language)
    panels = list_panels(comparison, words)
    pictures = {panel.name: render_svg(panel.draw, panel.size) for panel in panels}
    written = Written(*(folder / f"{NAME}.{kind}" for kind in ("html", "md", "json")))
    (folder / NAME).mkdir(parents=True, exist_ok=True)
    for name, picture in pictures.items():
        (folder / NAME / f"{name}.svg").write_bytes(picture)
    inline = {name: _to_data_uri(picture) for name, picture in pictures.items()}
    linked = {name: f"{NAME}/{name}.svg" for name in pictures}
    write_text(written.html, _render("comparison.html.j2", comparison, words, panels, inline))
    write_text(written.markdown, _render("comparison.md.j2", comparison, words, panels, linked))
    write_json(written.data, asdict(comparison))
    return written


def render_html(comparison: Comparison, *, language: Language = "en") -> str:
    """Return the comparison as one HTML page with its style and plots inside."""
    words = choose_words(comparison, language)
    panels = list_panels(comparison, words)
    plots = {one.name: _to_data_uri(render_svg(one.draw, one.size)) for one in panels}
    return _render("comparison.html.j2", comparison, words, panels, plots)


def render_markdown(comparison: Comparison, *, language: Language = "en") -> str:
    """Return the comparison as Markdown; its plots are files in ``comparison/``."""
    words = choose_words(comparison, language)
    panels = list_panels(comparison, words)
    plots = {one.name: f"{NAME}/{one.name}.svg" for one in panels}
    return _render("comparison.md.j2", comparison, words, panels, plots)


def tell_comparison(comparison: Comparison, *, language: Language = "en") -> Iterator[str]:
    """Yield the lines a terminal shows: warnings, findings, and the recommendation."""
    words = choose_words(comparison, language)
    for one in comparison.notices:
        yield f"{words.label(f'level_{one.level}')}: {words.say(one)}"
    yield from group_findings(comparison, words)
    yield title_recommendation(comparison, words)
    for one in comparison.recommendation.reasons:
        yield f"- {words.say(one)}"


def group_findings(comparison: Comparison, words: Words) -> list[str]:
    """Return the findings as paragraphs: one per pair, and what is not about a pair first."""
    found: dict[tuple[str, str], list[str]] = {}
    for one in comparison.findings:
        pair = str(one.values.get("first", "")), str(one.values.get("second", ""))
        found.setdefault(pair, []).append(words.say(one))
    return [("" if words.language == "zh" else " ").join(said) for said in found.values()]


def title_recommendation(comparison: Comparison, words: Words) -> str:
    """Return ``Recommended: NAME`` or that none is."""
    name = comparison.recommendation.contender
    if name is None:
        return words.label("no_recommendation")
    return words.label("recommended", name=words.title_contender(name))


def _to_data_uri(picture: bytes) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(picture).decode()}"


@cache
def _load_environment(is_html: bool) -> Environment:
    packages = ("groupwise.evaluation.comparison", "groupwise.evaluation.report")
    environment: Any = Environment(
        loader=ChoiceLoader([PackageLoader(package) for package in packages]),
        autoescape=is_html,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(cell=escape_cell)
    return environment


def _render(
    template: str,
    comparison: Comparison,
    words: Words,
    panels: Sequence[Panel],
    plots: Mapping[str, str],
) -> str:
    colors = [pick_color(index) for index in range(len(comparison.contenders))]
    label: Callable[..., str] = words.label
    return (
        _load_environment(template.endswith(".html.j2"))
        .get_template(template)
        .render(
            comparison=comparison,
            words=words,
            language=words.language,
            label=label,
            findings=group_findings(comparison, words),
            panels=panels,
            plots=plots,
            colors=colors,
            verdict=title_recommendation(comparison, words),
            tables=_collect_tables(comparison, words, colors),
            sections=_list_sections(comparison),
            folders=[folder for one in comparison.contenders for folder in one.folders],
        )
    )


def _collect_tables(comparison: Comparison, words: Words, colors: Sequence[str]) -> Tables:
    def is_different(row: SideRow) -> bool:
        return row.kind is not None

    different = [row for row in comparison.configuration if is_different(row)]
    same = [row for row in comparison.configuration if not is_different(row)]
    return Tables(
        results=tabulate_results(comparison, words, colors),
        settings=tabulate_sides(comparison, words, different),
        same_settings=tabulate_sides(comparison, words, same),
        data=tabulate_sides(comparison, words, comparison.data),
        epochs=tabulate_epochs(comparison, words),
        values=tabulate_values(comparison, words),
        differences=tabulate_differences(comparison, words),
        summary=tabulate_summary(comparison, words),
        axes=tabulate_axes(comparison, words),
        discordant=tabulate_discordant(comparison, words),
    )


def _list_sections(comparison: Comparison) -> list[str]:
    """Return the sections that have something to show, in their order."""
    shown = {
        "results": True,
        "settings": True,
        "data": True,
        "training": bool(comparison.curves or comparison.epochs),
        "grids": bool(comparison.axes),
        "differences": bool(comparison.versus),
        "discordant": any(pair.discordant for pair in comparison.versus),
    }
    return [name for name, is_shown in shown.items() if is_shown]
