"""``groupwise audit``: look for what would make a result wrong, before training."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Column, Table

from groupwise.cli.run import (
    ConfigName,
    Debug,
    Out,
    RecipeName,
    Settings,
    choose_folder,
    choose_recipe,
    print_progress,
    resolve_config,
    say_of_step,
)
from groupwise.core import Config, ConfigError, GroupwiseError, read_json
from groupwise.pipeline import (
    AUDIT_REWARDS,
    Recipe,
    StepProgress,
    run_recipe,
)

_AUDIT_DATA = "audit"
_MAX_SHOWN = 3

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
    baselines: Annotated[
        bool,
        typer.Option(
            "--baselines", help="Also say how much simple models learn from the training split."
        ),
    ] = False,
    debug: Debug = False,
) -> None:
    """Prepare and audit a recipe's data; exit 1 if the audit has errors."""
    found, config = choose_recipe(recipe, config, settings or [])
    resolved = resolve_config(found, config, settings or [])
    folder = out or choose_folder(found, config)
    _run_until(_AUDIT_DATA, found, resolved, folder)
    typer.echo((folder / _AUDIT_DATA / "audit.md").read_text(encoding="utf-8"))
    if _has_errors(folder / _AUDIT_DATA):
        raise typer.Exit(1)
    if baselines:
        _print_baselines(found, resolved, folder)


@audit_app.command()
def rewards(
    recipe: RecipeName,
    *,
    config: ConfigName = None,
    settings: Settings = None,
    out: Out = None,
    debug: Debug = False,
) -> None:
    """Audit what a recipe's rewards pay for, without a model; exit 1 if the audit has errors."""
    found, config = choose_recipe(recipe, config, settings or [])
    if found.rewards is None:
        raise ConfigError(f"the recipe {found.name} has no rewards that can be audited")
    resolved = resolve_config(found, config, settings or [])
    folder = out or choose_folder(found, config)
    _run_until(AUDIT_REWARDS, found, resolved, folder)
    path = folder / AUDIT_REWARDS / "audit.json"
    _print_reward_audit(read_json(path, dict))
    typer.echo(f"written: {path}")
    if _has_errors(folder / AUDIT_REWARDS):
        raise typer.Exit(1)


def _print_baselines(recipe: Recipe[Any], config: Config, folder: Path) -> None:
    """Print what can be learned without a policy, and that no test item was looked at."""
    from groupwise.flow import rate_baselines

    if recipe.task is None:
        raise ConfigError(f"the recipe {recipe.name} is made of no Task: it has no baselines")
    table = Table("simple model", "right", box=None)
    for name, share in rate_baselines(recipe.task(), config, folder).items():
        table.add_row(name, f"{share:.1%}")
    Console(highlight=False, markup=False).print(table)
    typer.echo("cross-validated within the training clusters; the test split was not looked at")


def _run_until(step: str, recipe: Recipe[Any], config: Config, folder: Path) -> None:
    """Run up to an audit; that it stops the run is no failure of the audit itself."""
    reached: list[str] = []

    def note_progress(progress: StepProgress) -> None:
        reached.append(progress.name)
        print_progress(progress)

    try:
        run_recipe(
            recipe,
            config,
            out=folder,
            until=step,
            report_progress=note_progress,
            say=say_of_step,
        )
    except GroupwiseError:
        if step not in reached or not _has_errors(folder / step):
            raise


def _has_errors(folder: Path) -> bool:
    path = folder / "audit.json"
    if not path.is_file():
        return False
    findings = read_json(path, dict)["findings"]
    return any(finding["level"] == "error" for finding in findings)


def _print_reward_audit(audit: dict[str, Any]) -> None:
    """Print a line per probe, under it the answers that show its fault, then the counts."""
    name = Column("finding", no_wrap=True)
    table = Table(name, "what was tried", "tried", "highest", "result", box=None)
    for row in audit["rows"]:
        highest = "" if row["highest"] is None else f"{row['highest']:.3g}"
        failed = f"{row['level']}: {row['num_failed']}"
        result = "passed" if row["is_passed"] else failed
        table.add_row(row["name"], row["title"], str(row["num_tried"]), highest, result)
    console = Console(highlight=False, markup=False, soft_wrap=True)
    console.print(table)
    for finding in audit["findings"]:
        console.print(f"\n{finding['level']} {finding['name']}: {finding['message']}")
        for place in finding["where"][:_MAX_SHOWN]:
            console.print(f"  {place}")
    levels = [finding["level"] for finding in audit["findings"]]
    console.print(
        f"\n{levels.count('error')} error(s), {levels.count('warning')} warning(s); "
        f"{audit['num_scored']} answers to {audit['num_examples']} examples were scored"
    )
