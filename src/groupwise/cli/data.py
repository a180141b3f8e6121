"""``groupwise data``: fetch public sets of problems, and mix them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer
from rich.console import Console
from rich.table import Table

from groupwise.cli.run import Debug, Settings
from groupwise.core import ConfigError, describe_unknown, load_config

if TYPE_CHECKING:
    from groupwise.data.problems import MixedProblems, MixSettings, SetName

data_app = typer.Typer(help="Fetch and mix public problems.", no_args_is_help=True)


@data_app.callback()
def data() -> None:
    """Fetch and mix public problems."""


Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder that is written.")]


@data_app.command()
def fetch(
    name: Annotated[str, typer.Argument(metavar="NAME|all", help="A set's name, or all.")],
    *,
    out: Out,
    debug: Debug = False,
) -> None:
    """Download a public set from the hub, a JSONL file per part."""
    from groupwise.data.problems import SET_NAMES, fetch_problems

    if name not in (*SET_NAMES, "all"):
        raise ConfigError(describe_unknown("set", name, (*SET_NAMES, "all")))
    for chosen in SET_NAMES if name == "all" else (cast("SetName", name),):
        for path, number in fetch_problems(chosen, out):
            typer.echo(f"{path}: {number:,} rows")


@data_app.command()
def mix(
    *,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="YAML of a mix.")
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Option(
            "--source",
            metavar="NAME[=PATH]",
            help="A set and its folder; without one, the hub. own=FILE: your own.",
        ),
    ] = None,
    out: Out,
    settings: Settings = None,
    debug: Debug = False,
) -> None:
    """Mix public sets into train, validation and test without leaks, and say what was dropped."""
    from groupwise.data.problems import load_problems, mix_problems, write_mix

    chosen = _read_settings(config, source or [], settings or [])
    loaded = [load_problems(one, seed=chosen.seed) for one in chosen.sources]
    mixed = mix_problems(loaded, chosen)
    write_mix(mixed, out)
    _print(mixed)
    typer.echo(f"written: {out}")


def _read_settings(config: Path | None, sources: list[str], settings: list[str]) -> "MixSettings":
    from groupwise.data.problems import MixSettings

    if (config is None) == (not sources):
        raise ConfigError("say what is mixed by either --config or --source")
    pairs = [source.partition("=") for source in sources]
    values = {"sources": [{"name": name, "path": path or None} for name, _, path in pairs]}
    return load_config(MixSettings, config or values, overrides=settings)


def _print(mixed: "MixedProblems") -> None:
    """Print findings first, then problems by set and split, then why rows are dropped."""
    console = Console(highlight=False, markup=False, soft_wrap=True)
    for finding in mixed.findings:
        console.print(f"{finding.level} {finding.name}: {finding.message}")
        console.print(f"  {', '.join(finding.where)}")
    counts = mixed.count()
    table = Table("set", *counts, box=None)
    for name in sorted({name for found in counts.values() for name in found}):
        table.add_row(name, *(f"{found.get(name, 0):,}" for found in counts.values()))
    console.print(table)
    for reason, number in mixed.drops.counts.items():
        console.print(f"dropped {number:,}: {reason}")
    used = sum(map(len, mixed.splits.values()))
    console.print(f"{mixed.num_rows:,} rows: {used:,} used, {mixed.drops.total:,} dropped")
