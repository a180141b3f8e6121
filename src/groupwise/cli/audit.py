"""``groupwise audit``: look for what would make a result wrong, before training."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Column, Table

from groupwise.cli.run import (
    AllowJudge,
    ConfigName,
    Debug,
    Out,
    RecipeName,
    Sample,
    Settings,
    choose_folder,
    choose_recipe,
    print_progress,
    resolve_config,
    say_of_step,
)
from groupwise.core import (
    Config,
    ConfigError,
    GroupwiseError,
    dump_config,
    load_config,
    read_json,
)
from groupwise.pipeline import (
    AUDIT_REWARDS,
    Recipe,
    StepProgress,
    run_recipe,
)

if TYPE_CHECKING:
    from groupwise.flow.replaying import Replay

_AUDIT_DATA = "audit"
_MAX_SHOWN = 3
_MAX_CHARACTERS = 200

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
    sample: Sample = 0,
    allow_judge: AllowJudge = None,
    debug: Debug = False,
) -> None:
    """Audit what a recipe's rewards pay for; exit 1 if the audit has errors."""
    found, config = choose_recipe(recipe, config, settings or [])
    if found.rewards is None:
        raise ConfigError(f"the recipe {found.name} has no rewards that can be audited")
    resolved = resolve_config(found, config, settings or [])
    folder = out or choose_folder(found, config)
    _run_until(AUDIT_REWARDS, found, resolved, folder, num_sampled=sample)
    path = folder / AUDIT_REWARDS / "audit.json"
    _print_reward_audit(read_json(path, dict))
    typer.echo(f"written: {path}")
    if _has_errors(folder / AUDIT_REWARDS):
        raise typer.Exit(1)


@audit_app.command()
def replay(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run with recorded completions.")],
    *,
    settings: Settings = None,
    allow_judge: AllowJudge = None,
    debug: Debug = False,
) -> None:
    """Run the rewards of a config, or of edited code, on what a training has sampled.

    No model is loaded but a judge's. Train with `--set grpo.record_rollouts=true` first.
    """
    from groupwise.flow.finished import open_run
    from groupwise.flow.replaying import replay_rewards

    found = open_run(run)
    kind = found.recipe.load_config_type()
    config = load_config(kind, dump_config(found.config), overrides=settings or [])
    replayed = replay_rewards(found, config)
    if replayed.num_unknown:
        typer.echo(f"left out: {replayed.num_unknown:,} of other data", err=True)
    _print_replay(replayed)


def _print_replay(replayed: "Replay") -> None:
    """Print a line per part, under it the first completions that earn something else now."""
    table = Table("part", "n", "same", "different", "unscored", "mean", box=None)
    for part in replayed.list_parts():
        num = len(part.before)
        unscored, mean = (
            "{} -> {}".format(*pair) for pair in (part.count_unscored(), map(_show, part.average()))
        )
        counts = map(str, (num, part.num_same, num - part.num_same))
        table.add_row(part.name, *counts, unscored, mean)
    console = Console(highlight=False, markup=False, soft_wrap=True)
    console.print(table)
    pairs = zip(replayed.rollouts, replayed.scores, strict=True)
    unlike = [(old, new) for old, new in pairs if old.score.value != new.value]
    for old, new in unlike[:_MAX_SHOWN]:
        change = f"{_show(old.score.value)} -> {_show(new.value)}"
        text = json.dumps(old.completion.text, ensure_ascii=False)[:_MAX_CHARACTERS]
        console.print(f"\nstep {old.step}, example {old.example}: {change}\n  {text}")
        if new.reason:
            console.print(f"  {new.reason}")


def _show(value: float | None) -> str:
    return "unscored" if value is None else f"{value:.4g}"


def _print_baselines(recipe: Recipe[Any], config: Config, folder: Path) -> None:
    """Print what can be learned without a policy, and that no test item was looked at."""
    from groupwise.flow.preparing import rate_baselines

    if recipe.task is None:
        raise ConfigError(f"the recipe {recipe.name} is made of no Task: it has no baselines")
    table = Table("simple model", "right", box=None)
    for name, share in rate_baselines(recipe.task(), config, folder).items():
        table.add_row(name, f"{share:.1%}")
    Console(highlight=False, markup=False).print(table)
    typer.echo("cross-validated within the training clusters; the test split was not looked at")


def _run_until(
    step: str, recipe: Recipe[Any], config: Config, folder: Path, *, num_sampled: int = 0
) -> None:
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
            num_sampled=num_sampled,
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
    console.print(f"\nthis is audit:{audit['digest']}")
    levels = [finding["level"] for finding in audit["findings"]]
    console.print(
        f"{levels.count('error')} error(s), {levels.count('warning')} warning(s); "
        f"{audit['num_scored']} answers to {audit['num_examples']} examples were scored"
    )
