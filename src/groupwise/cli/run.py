"""``groupwise new``, ``run`` and ``sweep``."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
import yaml

from groupwise.cli.options import (
    COUNT,
    PATH,
    Job,
    accept,
    allow_judge,
    choose_out,
    dry_run,
    language,
    option,
    print_progress,
    sample,
    say,
    say_of_step,
    takes_recipe,
)
from groupwise.core import ConfigError, GroupwiseError, describe_unknown

if TYPE_CHECKING:
    from groupwise.run.sweep import Sweep, SweepPlan


@click.command()
@click.argument("folder", metavar="DIR", type=PATH)
@option(
    "--kind",
    default="labels",
    help="labels, choice, number, text, json, code or pictures: what answers are; checker: code "
    "alone says what is good.",
)
@option(
    "--tiny",
    is_flag=True,
    help="With a tiny model of random weights: shows in seconds that all runs.",
)
def new(folder: Path, kind: str, tiny: bool) -> None:
    """Write a task of your own: a config, a few rows, a reward and what to do with them."""
    from groupwise.run.recipe import find_recipes

    homes = [recipe.template_folder for recipe in find_recipes().values()]
    paths = [path for home in homes if home for path in sorted(home.iterdir())]
    templates = {path.name: path for path in paths if path.name != "shared"}
    if kind not in templates:
        raise ConfigError(describe_unknown("kind of task", kind, list(templates)))
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} is there already", fix="name a new folder")
    left_out = shutil.ignore_patterns("tiny.yaml", "__pycache__")
    for source in (templates[kind].with_name("shared"), templates[kind]):
        shutil.copytree(source, folder, dirs_exist_ok=True, ignore=left_out)
    if tiny:  # a task's settings once more with those of a tiny model, without its comments
        config = folder / "task.yaml"
        changed = yaml.safe_load(config.read_text(encoding="utf-8"))
        changes = yaml.safe_load((templates[kind] / "tiny.yaml").read_text(encoding="utf-8"))
        for name, section in changes.items():
            changed[name] = {**changed.get(name, {}), **section}
        text = yaml.safe_dump(changed, sort_keys=False, allow_unicode=True)
        config.write_text(text, encoding="utf-8")
    click.echo(f"wrote {folder}: {', '.join(sorted(path.name for path in folder.iterdir()))}")
    for config in sorted(folder.glob("*.yaml")):
        click.echo(f"check it: groupwise run {config} --dry-run")
        click.echo(f"run it:   groupwise run {config}")


def _list_recipes(context: click.Context, _option: object, is_wanted: bool) -> None:
    """Print what is installed, and end."""
    if not is_wanted:
        return
    from groupwise.run.recipe import find_recipes, list_configs

    found = find_recipes()
    if not found:
        say("no recipes are installed; install the package groupwise again")
    for recipe in found.values():
        click.echo(f"{recipe.name}: {recipe.summary}")
        click.echo(f"  configs: {', '.join(list_configs(recipe)) or 'none'}")
    context.exit()


@click.command()
@takes_recipe
@choose_out("runs/<recipe>-<config name>")
@option("--resume", is_flag=True, help="Continue a run; start nothing new.")
@option("--until", metavar="STEP", help="End after this step.")
@accept
@sample
@option(
    "--share-with",
    metavar="DIR",
    type=PATH,
    help="Take over steps that a run in DIR has finished with the same settings and data.",
)
@dry_run
@option(
    "--list",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_list_recipes,
    help="List the recipes with their configs.",
)
@allow_judge
def run(
    recipe: str,
    config: str | None,
    settings: Sequence[str],
    out: Path | None,
    resume: bool,
    until: str | None,
    accept: Sequence[str],
    sample: int,
    share_with: Path | None,
    dry_run: bool,
) -> None:
    """Run a recipe. Running it again continues: what did not change is reused.

    RECIPE|CONFIG is a recipe of `groupwise run --list`, module:Task, or a config file that names
    its recipe. Several processes train together where torchrun has started it, with -m groupwise.
    """
    job = Job.choose(recipe, config, settings)
    folder = out or job.folder
    resolved = job.load(folder if resume else None)

    from groupwise.cli.printing import print_headline, print_preview
    from groupwise.inference.settings import check_hosts
    from groupwise.run.running import check_recipe, help_first, list_changed_settings, run_recipe
    from groupwise.run.steps import Siblings

    check_hosts(resolved)
    if help_first(job.recipe, resolved, out=folder):
        return
    siblings = None if share_with is None else Siblings(share_with)
    how: Any = {
        "out": folder,
        "is_resume": resume,
        "until": until,
        "accepted": accept,
        "num_sampled": sample,
    }
    if dry_run:
        print_preview(check_recipe(job.recipe, resolved, say=say, **how))
        return
    changed = list_changed_settings(resolved, out=folder)
    if changed:
        say(f"changed since the last start: {', '.join(changed)}")
    run_recipe(
        job.recipe,
        resolved,
        siblings=siblings,
        report_progress=print_progress,
        say=say_of_step,
        **how,
    )
    if until is not None:
        click.echo(f"ended after {until}: {folder / until}")
        return
    print_headline(folder)
    if (folder / "report.html").is_file():
        click.echo(f"report: {folder / 'report.html'}")


@click.command()
@takes_recipe
@option(
    "--grid",
    metavar="KEY=VALUE,VALUE",
    multiple=True,
    help="An axis: a setting and its values. Repeatable. Without one: what DIR holds.",
)
@option("--seeds", type=COUNT, metavar="N", help="The same as --grid seed=0,…,N-1.")
@choose_out("runs/<recipe>-<config name>-sweep", what="Folder.")
@option("--jobs", type=COUNT, show_default="1", help="Cells at once.")
@option("--devices", metavar="N,N", help="GPUs of this machine, dealt out one to a cell.")
@accept
@language
@dry_run
@allow_judge
def sweep(
    recipe: str,
    config: str | None,
    settings: Sequence[str],
    grid: Sequence[str],
    seeds: int | None,
    out: Path | None,
    jobs: int | None,
    devices: str | None,
    accept: Sequence[str],
    language: Literal["en", "zh"],
    dry_run: bool,
) -> None:
    """Run a recipe for every combination of some settings. Running it again continues.

    A sweep ends with the recipe's own report of several runs, if it has one; a sweep over seeds
    alone with that of its policies as methods.
    """
    from groupwise.run.sweep import plan_recorded, plan_sweep, run_sweep

    job = Job.choose(recipe, config, settings)
    folder = out or Path(f"{job.folder}-sweep")
    slots = [None] * (jobs or 1) if devices is None else _list_devices(devices, jobs)
    axes = [*grid, *([f"seed={','.join(map(str, range(seeds)))}"] if seeds else [])]
    how: Any = {"accepted": list(accept)}
    if axes:
        how |= {"out": folder, "settings": job.settings}
        plan = plan_sweep(job.recipe, job.config_path, axes, **how)
    elif job.config_name is not None or settings:
        raise ConfigError("a config and --set need --grid or --seeds", fix="give the axes, too")
    else:
        plan = plan_recorded(job.recipe, folder, **how)
    if dry_run:
        _print_plan(plan)
        click.echo(f"{len(slots)} at once")
        click.echo("ready: nothing was written")
        return
    result = run_sweep(plan, slots=slots, say=say)
    click.echo(f"{folder}: {_count_states(result)}")
    _report(job.recipe, result, folder, language)
    failed = [cell.name for cell in result.cells if cell.state == "failed"]
    if failed:
        kept = "the same command runs them again and keeps what is done"
        say(f"failed: {', '.join(failed)}; {kept}")
        raise click.exceptions.Exit(1)


def _list_devices(given: str, jobs: int | None) -> list[str]:
    """Return the devices that are dealt out."""
    if jobs is not None:
        raise ConfigError("--devices says how many cells run, and where: leave --jobs out")
    devices = [one.strip() for one in given.split(",")]
    if not all(devices) or len(set(devices)) < len(devices):
        raise ConfigError(f"--devices {given}: expected different devices, such as 0,1")
    return devices


def _report(recipe: Any, result: "Sweep", folder: Path, language: Literal["en", "zh"]) -> None:
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
            say(f"no {name}: {error}")


def _print_plan(plan: "SweepPlan") -> None:
    from groupwise.run.sweep import read_sweep

    width = max(len(axis.key) for axis in plan.axes)
    for axis in plan.axes:
        click.echo(f"{axis.key:<{width}}  {', '.join(axis.values)}")
    click.echo(f"{len(plan.cells)} cells")
    if (plan.folder / "sweep.json").is_file():
        click.echo(f"{plan.folder} has {_count_states(read_sweep(plan.folder))}")


def _count_states(result: "Sweep") -> str:
    states = [cell.state for cell in result.cells]
    named = ("done", "failed", "running", "waiting")
    counts = [f"{states.count(name)} {name}" for name in named if name in states]
    return f"{len(states)} cells: {', '.join(counts)}"
