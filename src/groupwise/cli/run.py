"""``groupwise new``, ``run`` and ``sweep``."""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
import yaml

from groupwise.cli import options
from groupwise.cli.options import PATH, Job, choose_out, option, say
from groupwise.core import ConfigError, GroupwiseError, describe_unknown, read_json

if TYPE_CHECKING:
    from groupwise.run.recipe import Preview
    from groupwise.run.sweep import Sweep

_UNLIMITED, _WIDEST_ROW = 10_000, 100
_MOST_SHOWN = 2_000


@click.command()
@click.argument("folder", metavar="DIR", type=PATH)
@option(
    "--kind",
    "labels, choice, number, text, json, code or pictures: what answers are; checker: code "
    "alone says what is good.",
    default="labels",
)
@option(
    "--tiny", "With a tiny model of random weights: shows in seconds that all runs.", is_flag=True
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
@options.takes_recipe
@choose_out("runs/<recipe>-<config name>")
@option("--resume", "Continue a run; start nothing new.", is_flag=True)
@option("--until STEP", "End after this step.")
@options.accept
@options.sample
@option(
    "--share-with DIR",
    "Take over steps that a run in DIR has finished with the same settings and data.",
    type=PATH,
)
@options.dry_run
@option(
    "--list",
    "List the recipes with their configs.",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_list_recipes,
)
@options.allow_judge
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
        report_progress=options.print_progress,
        say=options.say_of_step,
        **how,
    )
    if until is not None:
        click.echo(f"ended after {until}: {folder / until}")
        return
    print_headline(folder)
    if (folder / "report.html").is_file():
        click.echo(f"report: {folder / 'report.html'}")


@click.command()
@options.takes_recipe
@option(
    "--grid KEY=VALUE,VALUE",
    "An axis: a setting and its values. Repeatable. Without one: what DIR holds.",
    multiple=True,
)
@option("--seeds N", "The same as --grid seed=0,…,N-1.", type=options.COUNT)
@choose_out("runs/<recipe>-<config name>-sweep", what="Folder.")
@option("--jobs", "Cells at once.", type=options.COUNT, show_default="1")
@option("--devices N,N", "GPUs of this machine, dealt out one to a cell.")
@options.accept
@options.language
@options.dry_run
@options.allow_judge
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
    from groupwise.cli.compare import report_seeds, write_study
    from groupwise.run.sweep import plan_recorded, plan_sweep, read_sweep, run_sweep

    job = Job.choose(recipe, config, settings)
    folder = out or Path(f"{job.folder}-sweep")
    slots: list[str] | list[None] = [None] * (jobs or 1)
    if devices is not None:
        if jobs is not None:
            raise ConfigError("--devices says how many cells run, and where: leave --jobs out")
        slots = [one.strip() for one in devices.split(",")]
        if not all(slots) or len(set(slots)) < len(slots):
            raise ConfigError(f"--devices {devices}: expected different devices, such as 0,1")
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
        width = max(len(axis.key) for axis in plan.axes)
        for axis in plan.axes:
            click.echo(f"{axis.key:<{width}}  {', '.join(axis.values)}")
        click.echo(f"{len(plan.cells)} cells")
        if (folder / "sweep.json").is_file():
            click.echo(f"{folder} has {_count_states(read_sweep(folder))}")
        click.echo(f"{len(slots)} at once")
        click.echo("ready: nothing was written")
        return
    result = run_sweep(plan, slots=slots, say=say)
    click.echo(f"{folder}: {_count_states(result)}")
    done = [cell.folder for cell in result.cells if cell.state == "done"]
    metric = f"test/{job.recipe.headline}" if job.recipe.headline else None
    reports = {"report of the study": lambda: write_study(job.recipe, done, folder, language)}
    if [axis.key for axis in result.axes] == ["seed"]:
        reports["report over seeds"] = lambda: report_seeds(done, metric, folder, language)
    for name, write in reports.items():
        try:
            write()
        except GroupwiseError as error:
            say(f"no {name}: {error}")
    failed = [cell.name for cell in result.cells if cell.state == "failed"]
    if failed:
        kept = "the same command runs them again and keeps what is done"
        say(f"failed: {', '.join(failed)}; {kept}")
        raise click.exceptions.Exit(1)


def _count_states(result: "Sweep") -> str:
    states = [cell.state for cell in result.cells]
    named = ("done", "failed", "running", "waiting")
    counts = [f"{states.count(name)} {name}" for name in named if name in states]
    return f"{len(states)} cells: {', '.join(counts)}"


def print_headline(folder: Path) -> None:
    """Print what heads the report of each policy in ``evaluate/metrics.json``, and the looks at it.

    Replies without an answer are reported: they are wrong and yet no other answer.
    """
    path = folder / "evaluate" / "metrics.json"
    if not path.is_file():
        return
    from rich.console import Console
    from rich.table import Table

    from groupwise.evaluation.report.phrases import Phrases
    from groupwise.evaluation.results import read_headline, state_looks

    headline, metrics = read_headline(folder), read_json(path, list)
    heads = ("policy", "split", headline.title.lower(), "95 % interval", "n", "no answer")
    table = Table(*heads, box=None, pad_edge=False)
    invalid = {(x["name"], x["split"]): x["value"] for x in metrics}
    for metric in metrics:
        policy, _, measure = metric["name"].partition("/")
        if measure == headline.name:
            share = invalid.get((f"{policy}/invalid_rate", metric["split"]))
            ends = f"{100 * metric['low']:.1f}–{metric['high']:.1%}"
            cells = (policy, metric["split"], f"{metric['value']:.1%}", ends, str(metric["n"]))
            table.add_row(*cells, "–" if share is None else f"{share:.1%}")
    Console(highlight=False, markup=False).print(table)
    for items in sorted({one["split_digest"] for one in metrics if "split_digest" in one}):
        for look in state_looks(folder, items):
            level = "" if look.level == "info" else f"{look.level}: "
            click.echo(f"{level}{Phrases('en').say(look)}")


def print_preview(preview: "Preview") -> None:
    """Print what a run would do."""
    # Not for whoever only hears that a config is wrong.
    from rich.console import Console, Group
    from rich.constrain import Constrain
    from rich.panel import Panel
    from rich.rule import Rule
    from rich.table import Table
    from rich.text import Text

    # What goes to a file or a program is not broken into lines.
    width = None if sys.stdout.isatty() else _UNLIMITED
    console = Console(highlight=False, markup=False, emoji=False, width=width)
    for number, row in enumerate(preview.shown, start=1):
        # As the model sees it, and below it what is taught or right.
        pictures = f"\npictures: {', '.join(row.pictures)}" if row.pictures else ""
        prompt = Text(_make_printable(row.prompt) + pictures)
        rule = Rule("taught or right", style="dim")
        parts = Group(prompt, rule, Text(_make_printable(row.answer)))
        title = f"row {number} of {len(preview.shown)}"
        panel = Panel(parts, title=title, title_align="left", expand=False)
        console.print(Constrain(panel, _WIDEST_ROW))
    for found in preview.tables:
        if found.rows:
            table = Table(*found.columns, title=found.title, title_justify="left")
            for cells in found.rows:
                table.add_row(*cells)
            console.print(table)
    facts = Table.grid(padding=(0, 2))
    for name, value in preview.facts:
        facts.add_row(name, value)
    console.print(facts)
    if preview.problems:
        lines = "".join(f"\n  {problem}" for problem in preview.problems)
        raise ConfigError(f"{len(preview.problems)} problem(s) stop this run:{lines}")
    click.echo("ready: nothing was written")


def _make_printable(text: str) -> str:
    """Return the beginning of a text without what would steer a terminal."""
    shown = "".join(c if c.isprintable() or c == "\n" else "�" for c in text[:_MOST_SHOWN])
    left = len(text) - _MOST_SHOWN
    return f"{shown} … and {left:,} characters more" if left > 0 else shown
