"""The comparison report: systems × cells, from run folders or reported results.

Warnings first, then what the numbers say, a recommendation with its evidence or the reasons for
none, and tables and plots; HTML, Markdown and JSON from one data model, in English and Chinese.
"""

from groupwise.evaluation.comparison.cells_file import read_cells_file
from groupwise.evaluation.comparison.content import Comparison
from groupwise.evaluation.comparison.findings import build_comparison
from groupwise.evaluation.comparison.layout import (
    render_html,
    render_markdown,
    tell_comparison,
    write_comparison,
)
from groupwise.evaluation.comparison.material import GridAxis, Material
from groupwise.evaluation.comparison.sources import Question, Source, read_sources

__all__ = [
    "Comparison",
    "GridAxis",
    "Material",
    "Question",
    "Source",
    "build_comparison",
    "read_cells_file",
    "read_sources",
    "render_html",
    "render_markdown",
    "tell_comparison",
    "write_comparison",
]
