"""``groupwise judge calibrate``: how far is a judge to be trusted?"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table

from groupwise.cli.run import AllowJudge, Debug, Settings, say
from groupwise.core import ConfigError, ProgressLine, load_config

if TYPE_CHECKING:
    from groupwise.judge_calibration.calibrate import Calibration, CalibrationPlan

_BY_SUBSET = ("agreement", "kappa", "flip_rate", "length_bias", "ece")

judge_app = typer.Typer(help="Measure judges.", no_args_is_help=True)


@judge_app.callback()
def judge() -> None:
    """Measure judges."""


Judge = Annotated[Path | None, typer.Option("--judge", metavar="CONFIG", help="YAML of the judge.")]
Data = Annotated[
    str | None,
    typer.Option(
        "--data", metavar="FILE", help="JSONL, LLMBar's folder, or a name in GROUPWISE_DATA."
    ),
]
Verdicts = Annotated[
    Path | None,
    typer.Option(
        "--verdicts",
        metavar="FILE",
        help="JSONL of verdicts given before, or JudgeBench's outputs; no judge is asked.",
    ),
]
Format = Annotated[
    Literal["llmbar", "jsonl"] | None,
    typer.Option("--format", help="Of the data.", show_default="by its name"),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out", metavar="DIR", help="Folder.", show_default="runs/judge-<config or file name>"
    ),
]
Repeats = Annotated[
    int, typer.Option(min=1, help="Askings of each question at a temperature above 0.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print what would be asked; ask and write nothing.")
]


@judge_app.command()
def calibrate(
    *,
    judge: Judge = None,
    data: Data = None,
    verdicts: Verdicts = None,
    data_format: Format = None,
    out: Out = None,
    repeats: Repeats = 3,
    settings: Settings = None,
    dry_run: DryRun = False,
    allow_judge: AllowJudge = None,
    debug: Debug = False,
) -> None:
    """Ask a judge what people decided already, and measure how far it can be trusted.

    Running it again continues: what was answered is not asked again. With --verdicts, those of a
    file are measured and nobody is asked.
    """
    if verdicts is not None:
        _measure_recorded(verdicts, judge, data, out)
        return
    if judge is None or data is None:
        raise ConfigError(
            "there is nothing to calibrate",
            got="--judge and --data are not both given",
            fix="give both, or --verdicts with a file of verdicts that were given before",
        )
    from groupwise.judge_calibration.calibrate import calibrate_judge, plan_calibration
    from groupwise.judge_calibration.config import JudgeConfig
    from groupwise.judge_calibration.rated import find_rated, load_rated

    config = load_config(JudgeConfig, judge, overrides=settings or [])
    source = find_rated(data)
    rated = load_rated(source, source_format=data_format)
    plan = plan_calibration(config, rated, num_repeats=repeats)
    _print_plan(plan, is_all=dry_run)
    if dry_run:
        return
    found = calibrate_judge(
        config,
        rated,
        source,
        out=out or Path("runs") / f"judge-{judge.stem}",
        num_repeats=repeats,
        report_progress=ProgressLine("verdicts", say),
    )
    _print_measures(found)


def _measure_recorded(
    verdicts: Path, judge: Path | None, data: str | None, out: Path | None
) -> None:
    from groupwise.judge_calibration.calibrate import measure_recorded
    from groupwise.judge_calibration.recorded import read_recorded

    if judge is not None or data is not None:
        raise ConfigError(
            "--verdicts were given before, so nobody is asked", fix="leave out --judge and --data"
        )
    recorded = read_recorded(verdicts)
    folder = out or Path("runs") / f"judge-{verdicts.stem}"
    found = measure_recorded(recorded, verdicts, out=folder)
    for reason, number in recorded.drops.counts.items():
        typer.echo(f"not used   {number} {reason}")
    _print_measures(found)


def _print_plan(plan: "CalibrationPlan", *, is_all: bool) -> None:
    subsets = ", ".join(f"{name or 'unnamed'} {number}" for name, number in plan.subsets.items())
    typer.echo(f"judge      {plan.judge}")
    typer.echo(f"items      {plan.num_items} ({subsets})")
    if plan.drops:
        drops = ", ".join(f"{name} {number}" for name, number in plan.drops.items())
        typer.echo(f"not used   {drops}")
    typer.echo(f"verdicts   {plan.num_questions}")
    typer.echo(f"calls      at most {plan.num_calls} without retries; fewer if some are cached")
    if is_all:
        if plan.first_prompt is not None:
            typer.echo(f"first prompt:\n{plan.first_prompt}\n")
        typer.echo("ready: nothing was asked or written")


def _print_measures(found: "Calibration") -> None:
    """Print all numbers of the whole data with intervals, and a few of every subset."""
    from groupwise.evaluation.report.phrases import format_metric

    metrics = found.measures.metrics
    console = Console(highlight=False, markup=False)
    table = Table("measure", "all", "95 % interval", "n", box=None)
    for metric in metrics:
        if metric.split == "all":
            row = metric.measure, *format_metric(metric), str(metric.n)
            table.add_row(*row)
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
        typer.echo(f"no verdict: {number} calls, {cause}")
    if found.num_inconsistent_pairs:
        num = found.num_inconsistent_pairs
        typer.echo(f"another verdict, or none, in the other order: {num} pairs")
    typer.echo(f"{found.num_calls} calls; report: {found.report}")
