"""The report of a run: data read from its files, then HTML and Markdown rendered from it.

Every number comes from a file of the run folder; nothing is typed and nothing is trained.
"""

from groupwise.evaluation.report.building import build_report
from groupwise.evaluation.report.content import Report
from groupwise.evaluation.report.rendering import render_html, render_markdown, write_report

__all__ = ["Report", "build_report", "render_html", "render_markdown", "write_report"]
