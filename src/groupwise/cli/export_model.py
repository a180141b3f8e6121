"""``groupwise export-model``: the trained policy of a run for other tools."""

from pathlib import Path
from typing import Annotated

import typer

from groupwise.cli.run import Debug
from groupwise.core import RunFolder


def export_model(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    *,
    step: Annotated[str, typer.Option("--step", help="The training step.")] = "grpo",
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="A new folder.")],
    debug: Debug = False,
) -> None:
    """Write the adapter and merged weights of a run, and the lines that serve them with vLLM."""
    from groupwise.models import export_policy

    name = RunFolder(run).read_manifest()["recipe"]
    exported = export_policy(run / step / "policy", out, name=name)
    if exported.adapter is not None:
        typer.echo(f"adapter: {exported.adapter} (base: {exported.base})")
    typer.echo(f"merged: {exported.merged}, the same within {exported.max_difference:.1g}")
    for command in exported.commands:
        typer.echo(command)
