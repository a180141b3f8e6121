"""The report of a run: data read from its files, then HTML and Markdown rendered from it.

Every number comes from a file of the run folder; nothing is typed and nothing is trained.
"""

from groupwise.evaluation.report.building import build_report
from groupwise.evaluation.report.content import Report
from groupwise.evaluation.report.rendering import render_html, render_markdown, write_report
from groupwise.evaluation.report.sections import (
    Section,
    Table,
    Tile,
    read_sections,
    write_sections,
)
from groupwise.evaluation.report.tables import (
    describe_metric,
    make_tile,
    tabulate_policies,
    tabulate_trainable,
)

__all__ = [
    "Report",
    "Section",
    "Table",
    "Tile",
    "build_report",
    "describe_metric",
    "make_tile",
    "read_sections",
    "render_html",
    "render_markdown",
    "tabulate_policies",
    "tabulate_trainable",
    "write_report",
    "write_sections",
]
