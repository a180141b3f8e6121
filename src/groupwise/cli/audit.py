"""``groupwise audit``: look for what would make a result wrong, before training."""

import json
from pathlib import Path

import typer

from groupwise.cli.run import (
    ConfigName,
    Debug,
    Out,
    RecipeName,
    Settings,
    choose_folder,
    print_progress,
    resolve_config,
)
from groupwise.core import GroupwiseError
from groupwise.pipeline import StepProgress, find_recipe, run_recipe

_STEP = "audit"

audit_app = typer.Typer(help="Look for what would make a result wrong.", no_args_is_help=True)


@audit_app.callback()
def audit() -> None:
    """Look for what would make a result wrong."""


@audit_app.command()
def data(
    recipe: RecipeName,
    *,
    config: ConfigName = None,
    settings: Settings = None,
    out: Out = None,
    debug: Debug = False,
) -> None:
    """Prepare and audit a recipe's data; exit 1 if the audit has errors."""
    found = find_recipe(recipe)
    resolved = resolve_config(found, config, settings or [])
    folder = out or choose_folder(found, config)
    reached: list[str] = []

    def note_progress(progress: StepProgress) -> None:
        reached.append(progress.name)
        print_progress(progress)

    try:
        run_recipe(found, resolved, out=folder, until=_STEP, report_progress=note_progress)
    except GroupwiseError:
        if _STEP not in reached or not _has_errors(folder):
            raise
    typer.echo((folder / _STEP / "audit.md").read_text(encoding="utf-8"))
    if _has_errors(folder):
        raise typer.Exit(1)


def _has_errors(folder: Path) -> bool:
    path = folder / _STEP / "audit.json"
    if not path.is_file():
        return False
    findings = json.loads(path.read_text(encoding="utf-8"))["findings"]
    return any(finding["level"] == "error" for finding in findings)
