"""Rendering a report: one HTML file that needs nothing else, and Markdown with its pictures.

Takes what a report says and lays it out; it changes no number and reads no file but pictures.
"""

import base64
import io
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from groupwise.core import DataError, open_picture, write_text
from groupwise.evaluation.paired import PairedComparison
from groupwise.evaluation.report import numbers
from groupwise.evaluation.report.building import build_report
from groupwise.evaluation.report.canvas import color_policy, render_png, render_svg
from groupwise.evaluation.report.content import Mistake, Report, title_policy
from groupwise.evaluation.report.findings import describe_comparison
from groupwise.evaluation.report.plots import Plot, list_plots

PICTURE_WIDTH = 880
_JPEG_QUALITY = 78
_FOLDER = "report"


def _format_difference(one: PairedComparison) -> str:
    return numbers.format_points_interval(one.low, one.high)


_FILTERS: dict[str, Callable[..., str]] = {
    "share": numbers.format_share,
    "points": numbers.format_points,
    "points_interval": _format_difference,
    "p_value": numbers.format_p_value,
    "p_cell": numbers.format_p_cell,
    "moment": numbers.format_moment,
    "count": numbers.format_count,
    "value": numbers.format_value,
    "interval": numbers.format_interval,
    "policy": title_policy,
    "in_words": describe_comparison,
    "color": color_policy,
}


def render_html(report: Report) -> str:
    """Return the report as one HTML page with its style, plots and pictures inside."""
    pictures = {
        mistake.example_id: _to_data_uri(jpeg, "jpeg")
        for mistake in _list_mistakes(report)
        if (jpeg := _shrink_picture(mistake.picture)) is not None
    }
    plots = {
        plot.name: _to_data_uri(render_svg(plot.draw, plot.size), "svg+xml")
        for plot in list_plots(report)
    }
    return _render("report.html.j2", report, plots=plots, pictures=pictures)


def render_markdown(report: Report) -> str:
    """Return the report as Markdown; its plots and pictures are files in ``report/``."""
    plots = {plot.name: f"{_FOLDER}/{plot.name}.png" for plot in list_plots(report)}
    pictures = {
        mistake.example_id: f"{_FOLDER}/{_name_picture(number)}"
        for number, mistake in enumerate(_list_mistakes(report), start=1)
        if _shrink_picture(mistake.picture) is not None
    }
    return _render("report.md.j2", report, plots=plots, pictures=pictures)


def write_report(run_folder: Path) -> tuple[Path, Path]:
    """Write ``report.html``, ``report.md`` and its pictures in ``report/`` into a run's folder.

    Returns:
        The paths of the two reports.

    Raises:
        EvaluationError: if the folder does not exist or a file in it cannot be parsed.
        DataError: if a JSONL file in it is damaged.
    """
    report = build_report(run_folder)
    html, markdown = run_folder / "report.html", run_folder / "report.md"
    _write_pictures(report, list_plots(report), run_folder / _FOLDER)
    write_text(html, render_html(report))
    write_text(markdown, render_markdown(report))
    return html, markdown


def _write_pictures(report: Report, plots: Iterable[Plot], folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for plot in plots:
        (folder / f"{plot.name}.png").write_bytes(render_png(plot.draw, plot.size))
    for number, mistake in enumerate(_list_mistakes(report), start=1):
        jpeg = _shrink_picture(mistake.picture)
        if jpeg is not None:
            (folder / _name_picture(number)).write_bytes(jpeg)


def _name_picture(number: int) -> str:
    return f"mistake-{number:02d}.jpg"


def _list_mistakes(report: Report) -> tuple[Mistake, ...]:
    return report.mistakes.shown if report.mistakes is not None else ()


def _shrink_picture(path: Path | None) -> bytes | None:
    """Return a picture as a JPEG at most 880 pixels wide, None if it cannot be opened."""
    if path is None:
        return None
    try:
        picture = open_picture(path)
    except DataError:
        return None
    picture.thumbnail((PICTURE_WIDTH, PICTURE_WIDTH))
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=_JPEG_QUALITY, optimize=True)
    return buffer.getvalue()


def _to_data_uri(content: bytes, kind: str) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def _render(
    template: str, report: Report, *, plots: Mapping[str, str], pictures: Mapping[str, str]
) -> str:
    environment: Any = Environment(
        loader=PackageLoader("groupwise.evaluation.report"),
        autoescape=template.endswith(".html.j2"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(_FILTERS, cell=escape_cell)
    return environment.get_template(template).render(
        report=report,
        panels=list_plots(report),
        plots=plots,
        pictures=pictures,
        settings=list(flatten_settings((report.manifest or {}).get("config", {}))),
    )


def escape_cell(text: object) -> str:
    """Return text that stays in one Markdown table cell and is shown as it is."""
    clean = re.sub(r"[ \t\r\n]+", " ", str(text)).strip(" ")
    for mark in "\\`*_|[]":
        clean = clean.replace(mark, f"\\{mark}")
    return clean.replace("<", "&lt;")


def flatten_settings(value: Any, prefix: str = "") -> Iterable[tuple[str, str]]:
    """Yield ``("a.b", "value")`` of every setting."""
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():  # pyright: ignore[reportUnknownVariableType]
            yield from flatten_settings(inner, f"{prefix}.{key}" if prefix else str(key))  # pyright: ignore[reportUnknownArgumentType]
    else:
        yield prefix, "not set" if value is None else str(value)  # pyright: ignore[reportUnknownArgumentType]
