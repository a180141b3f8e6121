"""What ``groupwise run --dry-run`` prints: rows in panels, tables, facts and problems."""

import sys

import typer
from rich.console import Console, Group
from rich.constrain import Constrain
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from groupwise.core import ConfigError
from groupwise.pipeline import Preview, PreviewTable, ShownRow

_UNLIMITED, _WIDEST_ROW = 10_000, 100
_MOST_SHOWN = 2_000


def print_preview(preview: Preview) -> None:
    """Print what a run would do.

    Raises:
        ConfigError: if there are problems, naming each.
    """
    # What goes to a file or a program is not broken into lines.
    width = None if sys.stdout.isatty() else _UNLIMITED
    console = Console(highlight=False, markup=False, emoji=False, width=width)
    for number, row in enumerate(preview.shown, start=1):
        console.print(_frame(row, f"row {number} of {len(preview.shown)}"))
    for table in preview.tables:
        if table.rows:
            console.print(_tabulate(table))
    facts = Table.grid(padding=(0, 2))
    for name, value in preview.facts:
        facts.add_row(name, value)
    console.print(facts)
    if preview.problems:
        lines = "".join(f"\n  {problem}" for problem in preview.problems)
        raise ConfigError(f"{len(preview.problems)} problem(s) stop this run:{lines}")
    typer.echo("ready: nothing was written")


def _frame(row: ShownRow, title: str) -> Constrain:
    """Return a row as the model sees it, and below it what is taught or right."""
    pictures = f"\npictures: {', '.join(row.pictures)}" if row.pictures else ""
    parts = Group(
        Text(_make_printable(row.prompt) + pictures),
        Rule("taught or right", style="dim"),
        Text(_make_printable(row.answer)),
    )
    return Constrain(Panel(parts, title=title, title_align="left", expand=False), _WIDEST_ROW)


def _tabulate(found: PreviewTable) -> Table:
    table = Table(*found.columns, title=found.title, title_justify="left")
    for row in found.rows:
        table.add_row(*row)
    return table


def _make_printable(text: str) -> str:
    """Return the beginning of a text without what would steer a terminal."""
    shown = "".join(c if c.isprintable() or c == "\n" else "�" for c in text[:_MOST_SHOWN])
    left = len(text) - _MOST_SHOWN
    return f"{shown} … and {left:,} characters more" if left > 0 else shown
