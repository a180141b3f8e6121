"""``groupwise doctor``: is this machine ready?"""

from pathlib import Path

import typer

from groupwise.pipeline import check_machine


def doctor() -> None:
    """Check versions, devices, torchvision, disk and memory; exit 1 if something is broken."""
    checks = check_machine(Path.cwd())
    width = max(len(check.name) for check in checks)
    for check in checks:
        fix = f" → {check.fix}" if check.fix else ""
        typer.echo(f"{check.level:<7}  {check.name:<{width}}  {check.found}{fix}")
    if any(check.level == "broken" for check in checks):
        raise typer.Exit(1)
