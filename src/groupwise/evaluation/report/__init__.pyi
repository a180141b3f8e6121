"""The report of a run: data read from its files, then HTML and Markdown rendered from it.

Every number comes from a file of the run folder; nothing is typed and nothing is trained.
"""

from groupwise.evaluation.report.content import Report, build_report
from groupwise.evaluation.report.layout import lay_out, render_html, render_markdown, write_report
from groupwise.evaluation.report.sections import (
    Section,
    describe_metric,
    make_tile,
    read_sections,
    tabulate_policies,
    tabulate_trainable,
    write_sections,
)

__all__ = [
    "Report",
    "Section",
    "build_report",
    "describe_metric",
    "lay_out",
    "make_tile",
    "read_sections",
    "render_html",
    "render_markdown",
    "tabulate_policies",
    "tabulate_trainable",
    "write_report",
    "write_sections",
]
