"""``groupwise export-model``: the trained policy of a run for other tools."""

from pathlib import Path
from typing import Annotated

import typer

from groupwise.cli.run import Debug

Chosen = Annotated[
    str | None,
    typer.Option(
        "--policy",
        metavar="NAME",
        help="Of the run, such as sft or grpo/checkpoint-40.",
        show_default="the one its report is about",
    ),
]


def export_model(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    *,
    policy: Chosen = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="A new folder.")],
    debug: Debug = False,
) -> None:
    """Write the adapter, the merged weights and the model card of a run's policy."""
    from groupwise.flow import export_run, open_run

    exported = export_run(open_run(run), out, policy=policy)
    if exported.adapter is not None:
        typer.echo(f"adapter: {exported.adapter} (base: {exported.base})")
    typer.echo(f"merged: {exported.merged}, the same within {exported.max_difference:.1g}")
    typer.echo(f"card: {out / 'README.md'}")
    for command in exported.list_commands():
        typer.echo(command)
