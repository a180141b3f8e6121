"""``groupwise sweep``: run a grid of cells, continue it, or only check it."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from groupwise.cli.compare import ReportLanguage
from groupwise.cli.run import (
    AllowJudge,
    ConfigName,
    Debug,
    RecipeName,
    Settings,
    choose_folder,
    choose_recipe,
    say,
)
from groupwise.core import ConfigError, GroupwiseError
from groupwise.pipeline import Recipe, find_config
from groupwise.pipeline.sweep import (
    Sweep,
    SweepPlan,
    plan_recorded,
    plan_sweep,
    read_sweep,
    run_sweep,
)

_KEPT_LATER = "the same command runs them again and keeps what is done"


def sweep(
    recipe: RecipeName,
    *,
    config: ConfigName = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            "--grid",
            metavar="KEY=VALUE,VALUE",
            help="An axis: a setting and its values. Repeatable. Without one: what DIR holds.",
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option("--seeds", min=1, metavar="N", help="The same as --grid seed=0,…,N-1."),
    ] = None,
    settings: Settings = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Folder.",
            show_default="runs/<recipe>-<config name>-sweep",
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", min=1, help="Cells at once.", show_default="1"),
    ] = None,
    devices: Annotated[
        str | None,
        typer.Option(
            "--devices", metavar="N,N", help="GPUs of this machine, dealt out one to a cell."
        ),
    ] = None,
    cell: Annotated[
        str | None, typer.Option("--cell", metavar="NAME", help="Run this cell only.")
    ] = None,
    accept: Annotated[
        list[str] | None,
        typer.Option("--accept", metavar="FINDING", help="As for `run`, in every cell."),
    ] = None,
    language: ReportLanguage = "en",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check every cell, print the plan, write nothing.")
    ] = False,
    allow_judge: AllowJudge = None,
    debug: Debug = False,
) -> None:
    """Run a recipe for every combination of some settings. Running it again continues.

    A sweep ends with the recipe's own report of several runs, if it has one; a sweep over seeds
    alone with that of its policies as methods.
    """
    found, config = choose_recipe(recipe, config, settings or [])
    folder = out or Path(f"{choose_folder(found, config)}-sweep")
    slots = [None] * (jobs or 1) if devices is None else _list_devices(devices, jobs)
    axes = [*(grid or []), *([f"seed={','.join(map(str, range(seeds)))}"] if seeds else [])]
    plan = _make_plan(found, folder, axes, config, settings or [], accept or [])
    if dry_run:
        _print_plan(plan)
        typer.echo(f"{len(slots)} at once")
        typer.echo("ready: nothing was written")
        return
    result = run_sweep(plan, only=cell, slots=slots, say=say)
    if cell is None:
        typer.echo(f"{folder}: {_count_states(result)}")
        _report(found, result, folder, language)
    chosen = {one.name for one in plan.cells} if cell is None else {plan.find_cell(cell).name}
    failed = [c.name for c in result.cells if c.name in chosen and c.state == "failed"]
    if failed:
        typer.echo(f"failed: {', '.join(failed)}; {_KEPT_LATER}", err=True)
        raise typer.Exit(1)


def _list_devices(given: str, jobs: int | None) -> list[str]:
    """Return the devices that are dealt out."""
    if jobs is not None:
        raise ConfigError("--devices says how many cells run, and where: leave --jobs out")
    devices = [one.strip() for one in given.split(",")]
    if not all(devices) or len(set(devices)) < len(devices):
        raise ConfigError(f"--devices {given}: expected different devices, such as 0,1")
    return devices


def _make_plan(
    recipe: Recipe,
    folder: Path,
    grid: list[str],
    config: str | None,
    settings: list[str],
    accepted: list[str],
) -> SweepPlan:
    if grid:
        path = find_config(recipe, config)
        return plan_sweep(recipe, path, grid, out=folder, settings=settings, accepted=accepted)
    if config is not None or settings:
        raise ConfigError("a config and --set need --grid or --seeds", fix="give the axes, too")
    return plan_recorded(recipe, folder, accepted=accepted)


def _report(recipe: Recipe, result: Sweep, folder: Path, language: Literal["en", "zh"]) -> None:
    """Write the recipe's own report, and that of a sweep over seeds alone; say why not."""
    from groupwise.cli.compare import report_seeds, write_study

    done = [cell.folder for cell in result.cells if cell.state == "done"]
    metric = f"test/{recipe.headline}" if recipe.headline else None
    reports = {"report of the study": lambda: write_study(recipe, done, folder, language)}
    if [axis.key for axis in result.axes] == ["seed"]:
        reports["report over seeds"] = lambda: report_seeds(done, metric, folder, language)
    for name, write in reports.items():
        try:
            write()
        except GroupwiseError as error:
            typer.echo(f"no {name}: {error}", err=True)


def _print_plan(plan: SweepPlan) -> None:
    width = max(len(axis.key) for axis in plan.axes)
    for axis in plan.axes:
        typer.echo(f"{axis.key:<{width}}  {', '.join(axis.values)}")
    work = ", ".join(f"{step} {number}" for step, number in plan.count_work().items())
    typer.echo(f"{len(plan.cells)} cells; different work over all of them: {work}")
    if (plan.folder / "sweep.json").is_file():
        typer.echo(f"{plan.folder} has {_count_states(read_sweep(plan.folder))}")


def _count_states(result: Sweep) -> str:
    states = [cell.state for cell in result.cells]
    named = ("done", "failed", "running", "waiting")
    counts = [f"{states.count(name)} {name}" for name in named if name in states]
    return f"{len(states)} cells: {', '.join(counts)}"
