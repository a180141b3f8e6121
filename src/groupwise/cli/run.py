"""``groupwise run``: run a recipe, continue it, or only check it."""

from pathlib import Path
from typing import Annotated, Any

import typer

from groupwise.cli.printing import print_headline, print_preview
from groupwise.core import Config, ConfigError, RunFolder, load_config
from groupwise.flow.distributed import help_first
from groupwise.inference.settings import allow_hosts, check_hosts
from groupwise.pipeline import (
    Recipe,
    Siblings,
    StepProgress,
    check_recipe,
    find_config,
    find_recipe,
    find_recipe_of,
    list_changed_settings,
    run_recipe,
)

RecipeName = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE|CONFIG",
        help="See `groupwise recipes`; module:Task; or a config file that names its recipe.",
    ),
]
ConfigName = Annotated[
    str | None,
    typer.Option(
        "--config",
        metavar="NAME_OR_FILE",
        help="A config or a YAML file.",
        show_default="demo, or the recipe's only one",
    ),
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change one setting.")
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out", metavar="DIR", help="Run folder.", show_default="runs/<recipe>-<config name>"
    ),
]
Sample = Annotated[
    int,
    typer.Option(
        "--sample",
        metavar="N",
        min=0,
        help="Let the reward audit look at so many answers of the base; says how long it takes.",
        show_default="none",
    ),
]


def _allow_hosts(hosts: list[str] | None) -> list[str] | None:
    """Remember the hosts before anything is read that leads to one."""
    if hosts:
        allow_hosts(hosts)
    return hosts


AllowJudge = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-judge",
        metavar="HOST",
        callback=_allow_hosts,
        help="Let configs and runs send rows, pictures and their _API_KEY to this host, from now "
        "on. Repeatable.",
    ),
]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks of all errors.")]


def run(
    recipe: RecipeName,
    *,
    config: ConfigName = None,
    settings: Settings = None,
    out: Out = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue a run; start nothing new.")
    ] = False,
    until: Annotated[
        str | None, typer.Option("--until", metavar="STEP", help="End after this step.")
    ] = None,
    accept: Annotated[
        list[str] | None,
        typer.Option(
            "--accept",
            metavar="FINDING",
            help="Train although the reward audit finds this; the report says so. Repeatable. "
            "audit: all that the audit in the run folder has shown; audit:DIGEST: an audit.",
        ),
    ] = None,
    sample: Sample = 0,
    share_with: Annotated[
        Path | None,
        typer.Option(
            "--share-with",
            metavar="DIR",
            help="Take over steps that a run in DIR has finished with the same settings and data.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, print it, write nothing.")
    ] = False,
    allow_judge: AllowJudge = None,
    debug: Debug = False,
) -> None:
    """Run a recipe. Running it again continues: what did not change is reused.

    Several processes train together where torchrun has started it, with -m groupwise.
    """
    found, config = choose_recipe(recipe, config, settings or [])
    folder = out or choose_folder(found, config)
    resolved = resolve_config(found, config, settings or [], folder if resume else None)
    check_hosts(resolved)
    if help_first(found, resolved, out=folder):
        return
    siblings = None if share_with is None else Siblings(share_with)
    if dry_run:
        preview = check_recipe(
            found,
            resolved,
            out=folder,
            is_resume=resume,
            until=until,
            accepted=accept or [],
            num_sampled=sample,
            say=say,
        )
        print_preview(preview)
        return
    changed = list_changed_settings(resolved, out=folder)
    if changed:
        typer.echo(f"changed since the last start: {', '.join(changed)}", err=True)
    run_recipe(
        found,
        resolved,
        out=folder,
        is_resume=resume,
        until=until,
        accepted=accept or [],
        num_sampled=sample,
        siblings=siblings,
        report_progress=print_progress,
        say=say_of_step,
    )
    if until is not None:
        typer.echo(f"ended after {until}: {folder / until}")
        return
    print_headline(folder, first=found.headline)
    if (folder / "report.html").is_file():
        typer.echo(f"report: {folder / 'report.html'}")


def choose_recipe(
    name: str, config: str | None, settings: list[str]
) -> tuple[Recipe[Any], str | None]:
    """Return the recipe called ``name`` and its config; a config file names its recipe itself."""
    if Path(name).suffix not in (".yaml", ".yml"):
        return find_recipe(name), config
    if config is not None:
        raise ConfigError("two configs are given", got=f"{name} and --config {config}")
    return find_recipe_of(Path(name), overrides=settings), name


def choose_folder(recipe: Recipe[Any], config: str | None) -> Path:
    """Return the run folder of a config where none is given."""
    path = find_config(recipe, config)
    name = path.absolute().parent.name if path.stem == recipe.name else path.stem
    return Path("runs") / f"{recipe.name}-{name}"


def resolve_config(
    recipe: Recipe[Any], name: str | None, settings: list[str], recorded: Path | None = None
) -> Config:
    """Load the config called ``name``; without a name, what the run ``recorded`` if given."""
    if name is None and recorded is not None:
        manifest = RunFolder(recorded).read_manifest()
        if manifest["recipe"] == recipe.name:
            return load_config(recipe.load_config_type(), manifest["config"], overrides=settings)
    return load_config(recipe.load_config_type(), find_config(recipe, name), overrides=settings)


def say(line: str) -> None:
    """Print a line about the work that goes on, on stderr."""
    typer.echo(line, err=True)


def say_of_step(line: str) -> None:
    """Print a line about the work of a step, below the line that the step began with."""
    say(f"  {line}")


def print_progress(progress: StepProgress) -> None:
    """Print one line when a step begins and one when it has ended, on stderr."""
    say(progress.describe())
