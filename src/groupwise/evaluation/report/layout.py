"""The page of a run: what its report says, in the words of one language."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from groupwise.evaluation import page
from groupwise.evaluation.page import Block, Language, Part, Words, numbers
from groupwise.evaluation.predictions import ACCURACY
from groupwise.evaluation.report.answers import show_answers
from groupwise.evaluation.report.changes import show_changes
from groupwise.evaluation.report.content import Report, build_report
from groupwise.evaluation.report.items import show_mistakes, show_prompt
from groupwise.evaluation.report.origin import show_data, show_next, show_settings
from groupwise.evaluation.report.results import show_accuracy, show_comparisons, show_slices
from groupwise.evaluation.report.sections import Section, make_tile
from groupwise.evaluation.report.training import show_training
from groupwise.evaluation.report.worth import is_shown_useful

NAME = "report"
_MAX_TILES = 3
_FILES = {
    "accuracy": ("evaluate/metrics.json",),
    "comparisons": ("evaluate/comparisons.json",),
    "training": ("/metrics.jsonl", "/on_policy.json"),
    "answers": ("evaluate/predictions.jsonl",),
    "mistakes": ("evaluate/predictions.jsonl",),
    "data": ("audit/audit.json",),
    "settings": ("manifest.json",),
}


def write_report(run_folder: Path, *, language: Language = "en") -> tuple[Path, Path]:
    """Write ``report.html``, ``report.md`` and its pictures in ``report/`` into a run's folder.

    Returns:
        The paths of the two reports.

    Raises:
        EvaluationError: if the folder does not exist or a file in it cannot be parsed.
        DataError: if a JSONL file in it is damaged.
    """
    return page.write_page(lay_out(build_report(run_folder), language), run_folder, name=NAME)


def render_html(report: Report, *, language: Language = "en") -> str:
    """Return the report as one HTML page with its style, plots and pictures inside."""
    return page.render_html(lay_out(report, language))


def render_markdown(report: Report, *, language: Language = "en") -> str:
    """Return the report as Markdown; its plots and pictures are files in ``report/``."""
    return page.render_markdown(lay_out(report, language), folder=NAME)


def lay_out(report: Report, language: Language = "en") -> page.Page:
    """Return the page of a run."""
    words = Words(language, policies=report.files.policies)
    findings = words.say_all(report.findings)
    changes, is_scored = show_changes(report, words), report.files.headline is not ACCURACY
    heading, others = _list_sections(report, words)
    parts = (
        *(changes if is_scored else ()),
        *heading,
        show_accuracy(report, words),
        show_comparisons(report, words),
        *(() if is_scored else changes),
        show_training(report.files, words),
        *show_slices(report, words),
        *others,
        show_answers(report, words),
        *show_mistakes(report, words),
        *show_prompt(report, words),
        show_data(report.files, words),
        show_settings(report.files.manifest, words),
        *show_next(report, words),
    )
    absent = report.files.absent
    return page.Page(
        title=report.title,
        lead=_describe_origin(report, words),
        language=language,
        notices=tuple(page.Notice(one.level, words.say(one), one.source) for one in report.notices),
        checked=words.label("run_checked"),
        tiles=tuple(_list_tiles(report, words)),
        boxes=(page.Box("findings", (findings,)),) if findings else (),
        parts=tuple(_tell_absent(part, absent, words) for part in parts),
        footer=(
            page.Paragraph(words.label("run_absent" if absent else "run_whole", names=absent), ""),
        ),
        plot_form="png" if page.can_draw(words.label("accuracy")) else "svg",
    )


def _tell_absent(part: Part, absent: tuple[str, ...], words: Words) -> Part:
    """Return a part with a sentence for each of its files that is not there."""
    gone: list[Block] = [
        page.Paragraph(words.label("absent", name=name), "absent")
        for name in absent
        if name.endswith(_FILES.get(part.name, ()))
    ]
    return replace(part, blocks=(*gone, *part.blocks))


def _describe_origin(report: Report, words: Words) -> str:
    manifest = report.files.manifest
    if manifest is None:
        return words.label("no_manifest")
    unknown = words.label("unknown")
    return words.label(
        "started",
        moment=numbers.format_moment(manifest.get("started_at", unknown)),
        seed=manifest.get("seed", unknown),
        version=manifest.get("packages", {}).get("groupwise", unknown),
    )


def _list_tiles(report: Report, words: Words) -> Iterator[page.Tile]:
    if not report.main:
        return
    for section in _choose_sections(report, words):
        yield from section.tiles
    last = list(report.main)[-1]
    headline = report.files.headline
    named = {"policy": words.title_policy(last), "split": report.split}
    text = words.label("measure_of", measure=words.name_measure(headline), **named)
    tile = make_tile(report.main[last][headline.name], text)
    yield replace(tile, is_good=is_shown_useful(report))
    mine = [
        one
        for one in report.files.comparisons
        if (one.measure, one.split, one.policy_b) == (headline.name, report.split, last)
    ]
    for one in mine[:_MAX_TILES]:
        text = words.label("points_against", policy=words.title_policy(one.policy_a))
        note = f"{words.interval(one.low, one.high)}, {numbers.format_p_value(one.p_value_holm)}"
        yield page.Tile(numbers.format_points(one.difference), text, note)


def _choose_sections(report: Report, words: Words) -> list[Section]:
    return [one for one in report.files.sections if one.is_for(words.language)]


def _list_sections(report: Report, words: Words) -> tuple[list[Part], list[Part]]:
    """Return the sections that head the page, as they have tiles, and the others."""
    parts: tuple[list[Part], list[Part]] = [], []
    for number, section in enumerate(_choose_sections(report, words), start=1):
        text = (page.Paragraph(section.text),) if section.text else ()
        tables: tuple[Block, ...] = section.tables
        if len(tables) > 1:
            tables = (page.Fold(words.label("num_tables", num=len(tables)), tables),)
        part = Part(f"section-{number}", section.title, (*text, *tables))
        parts[0 if section.tiles else 1].append(part)
    return parts
