"""``groupwise evaluate``: a finished policy on other labelled data."""

from pathlib import Path
from typing import Annotated

import typer

from groupwise.cli.compare import split_run
from groupwise.cli.printing import print_headline
from groupwise.cli.run import AllowJudge, Debug, say


def evaluate(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN[:POLICY]",
            help="A run, and which of its policies: sft, prompt, grpo/checkpoint-40, …",
        ),
    ],
    data: Annotated[
        Path,
        typer.Argument(metavar="FILE|FOLDER", help="Labelled rows, as the recipe's data has them."),
    ],
    *,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="A new folder.")],
    allow_judge: AllowJudge = None,
    debug: Debug = False,
) -> None:
    """Measure a finished policy on other labelled data, as its run measured it.

    The folder has scored items, a report, and what of the data training has seen; `compare` takes
    it beside runs and other such folders. Running it again continues.
    """
    from groupwise.flow.finished import open_run
    from groupwise.flow.other_data import evaluate_on

    folder, policy = split_run(run)
    found = evaluate_on(open_run(folder), data, out=out, policy=policy, say=say)
    typer.echo(f"{found.num_rows:,} rows, {found.num_rows - found.drops.total:,} asked")
    for reason, count in found.drops.counts.items():
        typer.echo(f"not used: {count:,} {reason}", err=True)
    for finding in (*found.audit.errors, *found.audit.warnings):
        typer.echo(f"{finding.level}: {finding.message}", err=True)
    if found.num_seen:
        typer.echo(f"seen in training: {found.num_seen:,} rows; the report has both numbers")
    print_headline(out)
    typer.echo(f"report: {out / 'report.html'}")
