"""What ``groupwise run`` prints of its results, and what ``--dry-run`` prints before."""

import sys
from pathlib import Path

import click
from rich.console import Console, Group
from rich.constrain import Constrain
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from groupwise.core import ConfigError, read_json
from groupwise.run.recipe import Preview, ShownRow

_UNLIMITED, _WIDEST_ROW = 10_000, 100
_MOST_SHOWN = 2_000


def print_headline(folder: Path) -> None:
    """Print what heads the report of each policy in ``evaluate/metrics.json``, and the looks at it.

    Replies without an answer are reported: they are wrong and yet no other answer.
    """
    path = folder / "evaluate" / "metrics.json"
    if not path.is_file():
        return
    from groupwise.evaluation.report.phrases import Phrases
    from groupwise.evaluation.results import read_headline, state_looks

    headline, metrics = read_headline(folder), read_json(path, list)
    heads = ("policy", "split", headline.title.lower(), "95 % interval", "n", "no answer")
    table = Table(*heads, box=None, pad_edge=False)
    invalid = {(x["name"], x["split"]): x["value"] for x in metrics}
    for metric in metrics:
        policy, _, measure = metric["name"].partition("/")
        if measure == headline.name:
            share = invalid.get((f"{policy}/invalid_rate", metric["split"]))
            ends = f"{100 * metric['low']:.1f}–{metric['high']:.1%}"
            cells = (policy, metric["split"], f"{metric['value']:.1%}", ends, str(metric["n"]))
            table.add_row(*cells, "–" if share is None else f"{share:.1%}")
    Console(highlight=False, markup=False).print(table)
    for items in sorted({one["split_digest"] for one in metrics if "split_digest" in one}):
        for look in state_looks(folder, items):
            level = "" if look.level == "info" else f"{look.level}: "
            click.echo(f"{level}{Phrases('en').say(look)}")


def print_preview(preview: Preview) -> None:
    """Print what a run would do."""
    # What goes to a file or a program is not broken into lines.
    width = None if sys.stdout.isatty() else _UNLIMITED
    console = Console(highlight=False, markup=False, emoji=False, width=width)
    for number, row in enumerate(preview.shown, start=1):
        console.print(_frame(row, f"row {number} of {len(preview.shown)}"))
    for found in preview.tables:
        if found.rows:
            table = Table(*found.columns, title=found.title, title_justify="left")
            for cells in found.rows:
                table.add_row(*cells)
            console.print(table)
    facts = Table.grid(padding=(0, 2))
    for name, value in preview.facts:
        facts.add_row(name, value)
    console.print(facts)
    if preview.problems:
        lines = "".join(f"\n  {problem}" for problem in preview.problems)
        raise ConfigError(f"{len(preview.problems)} problem(s) stop this run:{lines}")
    click.echo("ready: nothing was written")


def _frame(row: ShownRow, title: str) -> Constrain:
    """Return a row as the model sees it, and below it what is taught or right."""
    pictures = f"\npictures: {', '.join(row.pictures)}" if row.pictures else ""
    parts = Group(
        Text(_make_printable(row.prompt) + pictures),
        Rule("taught or right", style="dim"),
        Text(_make_printable(row.answer)),
    )
    return Constrain(Panel(parts, title=title, title_align="left", expand=False), _WIDEST_ROW)


def _make_printable(text: str) -> str:
    """Return the beginning of a text without what would steer a terminal."""
    shown = "".join(c if c.isprintable() or c == "\n" else "�" for c in text[:_MOST_SHOWN])
    left = len(text) - _MOST_SHOWN
    return f"{shown} … and {left:,} characters more" if left > 0 else shown
