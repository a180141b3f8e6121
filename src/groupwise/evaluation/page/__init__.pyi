"""The page kernel: what run reports, comparisons and judge reports are made of.

A page is data (``blocks``) in the words of one language (``words``); ``rendering`` writes it as
one HTML file and as Markdown with its plots.
"""

from groupwise.evaluation.page.answer_plots import plot_reliability
from groupwise.evaluation.page.blocks import (
    DASH,
    Block,
    Box,
    Bullets,
    Card,
    Cards,
    Cell,
    Fold,
    Heading,
    Notice,
    Page,
    Paragraph,
    Part,
    Plot,
    Plots,
    Table,
    Tables,
    Tile,
    Verbatim,
)
from groupwise.evaluation.page.canvas import can_draw, color_policy, pick_color
from groupwise.evaluation.page.plots import (
    Bar,
    Line,
    explain_smoothing,
    name_file,
    plot_bars,
    plot_lines,
    shorten,
)
from groupwise.evaluation.page.rendering import list_plots, render_html, render_markdown, write_page
from groupwise.evaluation.page.shading import Scale
from groupwise.evaluation.page.tables import (
    show_metric,
    show_sized,
    tabulate_confusion,
    tabulate_metrics,
    tell_calibration,
)
from groupwise.evaluation.page.words import (
    LANGUAGES,
    LEVELS,
    Language,
    Level,
    Statement,
    Words,
    mark_code,
    unmark_code,
)

__all__ = [
    "DASH",
    "LANGUAGES",
    "LEVELS",
    "Bar",
    "Block",
    "Box",
    "Bullets",
    "Card",
    "Cards",
    "Cell",
    "Fold",
    "Heading",
    "Language",
    "Level",
    "Line",
    "Notice",
    "Page",
    "Paragraph",
    "Part",
    "Plot",
    "Plots",
    "Scale",
    "Statement",
    "Table",
    "Tables",
    "Tile",
    "Verbatim",
    "Words",
    "can_draw",
    "color_policy",
    "explain_smoothing",
    "list_plots",
    "mark_code",
    "name_file",
    "pick_color",
    "plot_bars",
    "plot_lines",
    "plot_reliability",
    "render_html",
    "render_markdown",
    "shorten",
    "show_metric",
    "show_sized",
    "tabulate_confusion",
    "tabulate_metrics",
    "tell_calibration",
    "unmark_code",
    "write_page",
]
