"""``groupwise doctor``: is this machine ready, and does it compute what another one computes?"""

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from groupwise.core import describe_numerics, list_gpus
from groupwise.pipeline import check_machine


def doctor(
    *,
    numerics: Annotated[
        bool,
        typer.Option("--numerics", help="Train a tiny fixed policy and print what came of it."),
    ] = False,
) -> None:
    """Check versions, devices, torchvision, disk and memory; exit 1 if something is broken.

    With --numerics, two machines that print the same digests compute the same to the last bit.
    """
    if numerics:
        print_numerics()
        return
    checks = check_machine(Path.cwd())
    width = max(len(check.name) for check in checks)
    for check in checks:
        fix = f" → {check.fix}" if check.fix else ""
        typer.echo(f"{check.level:<7}  {check.name:<{width}}  {check.found}{fix}")
    if any(check.level == "broken" for check in checks):
        raise typer.Exit(1)


def print_numerics() -> None:
    """Print what decides how this machine rounds, and digests of a tiny training's weights."""
    from groupwise.pipeline.numerics import train_fixed

    for name, value in describe_numerics().items():
        shown = ", ".join(value) if isinstance(value, list) else str(value)
        typer.echo(f"{name.replace('_', ' ')}: {shown}")
    where = ", ".join(list_gpus()) or "one thread"
    with tempfile.TemporaryDirectory() as folder:
        for part, digest in train_fixed(Path(folder)):
            typer.echo(f"weights, {part}, {where}: {digest}")
