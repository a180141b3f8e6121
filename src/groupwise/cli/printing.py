"""What ``groupwise run`` prints of its results, and what ``--dry-run`` prints before."""

import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console, Group
from rich.constrain import Constrain
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from groupwise.core import ConfigError, read_json
from groupwise.run.recipe import Preview, PreviewTable, ShownRow

_INVALID = "invalid_rate"


def print_headline(folder: Path, *, first: str = "") -> None:
    """Print what heads the report of each policy in ``evaluate/metrics.json``, and the looks at it.

    Its interval is by clusters where there is one; replies without an answer are reported:
    they are wrong and yet no other answer.
    """
    path = folder / "evaluate" / "metrics.json"
    if not path.is_file():
        return
    from groupwise.evaluation.results import read_headline

    headline = read_headline(folder)
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for metric in read_json(path, list):
        policy, _, measure = metric["name"].partition("/")
        rows.setdefault((policy, metric["split"]), {})[measure] = metric
    shown = [first] if first else []
    if any(own.get(_INVALID, {}).get("value") for own in rows.values()):
        shown.append(_INVALID)
    splits = sorted({split for _, split in rows})
    keys = ["policy", "split"] if splits[1:] else [f"on {split}" for split in splits]
    heads = ("no answer" if name == _INVALID else name.replace("_", " ") for name in shown)
    table = Table(
        *keys, *heads, headline.title.lower(), "95 % interval", "n", box=None, pad_edge=False
    )
    for key, own in rows.items():
        if headline.name in own:
            cells = [*key[: len(keys)], *(_describe(own.get(name)) for name in shown)]
            metric = own[headline.name]
            table.add_row(*cells, *_list_cells(metric), str(metric["n"]))
    Console(highlight=False, markup=False).print(table)
    measured = (metric for own in rows.values() for metric in own.values())
    _print_looks(folder, {one["split_digest"] for one in measured if "split_digest" in one})


def _print_looks(folder: Path, digests: set[str]) -> None:
    from groupwise.evaluation.report.phrases import Phrases
    from groupwise.evaluation.results import state_looks

    for look in (one for items in sorted(digests) for one in state_looks(folder, items)):
        level = "" if look.level == "info" else f"{look.level}: "
        click.echo(f"{level}{Phrases('en').say(look)}")


def _describe(metric: dict[str, Any] | None) -> str:
    if metric is None:
        return "–"
    value, ends = _list_cells(metric)
    return value if metric["name"].endswith(f"/{_INVALID}") else f"{value} ({ends})"


def _list_cells(metric: dict[str, Any]) -> tuple[str, str]:
    return f"{metric['value']:.1%}", f"{100 * metric['low']:.1f}–{metric['high']:.1%}"


_UNLIMITED, _WIDEST_ROW = 10_000, 100
_MOST_SHOWN = 2_000


def print_preview(preview: Preview) -> None:
    """Print what a run would do."""
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
