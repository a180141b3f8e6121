"""``groupwise predict``: answer new rows with a finished run."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from groupwise.cli.compare import split_run
from groupwise.cli.run import AllowJudge, Debug, say
from groupwise.core import ProgressLine

if TYPE_CHECKING:
    from groupwise.flow.prediction import PredictionSummary

FinishedRun = Annotated[
    str,
    typer.Argument(
        metavar="RUN[:POLICY]", help="A run, and which of its policies: grpo, sft, prompt, …"
    ),
]
_MAX_NAMED = 10
_MAX_ANSWERS = 10
_MAX_REASONS = 5


def predict(
    run: FinishedRun,
    rows: Annotated[
        Path,
        typer.Argument(
            metavar="FILE|FOLDER", help="Rows with the columns of the recipe's data, or its folder."
        ),
    ],
    *,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="JSONL of answers.")],
    batch_size: Annotated[int, typer.Option(min=1, help="Rows asked together.")] = 8,
    allow_judge: AllowJudge = None,
    debug: Debug = False,
) -> None:
    """Answer every row of a file or folder. Running it again continues: answers are kept.

    Exits with 1 if there is no answer at all.
    """
    from groupwise.flow.finished import open_run
    from groupwise.flow.prediction import predict_rows

    folder, policy = split_run(run)
    summary = predict_rows(
        open_run(folder),
        rows,
        out=out,
        policy=policy,
        batch_size=batch_size,
        report_progress=ProgressLine("rows", say),
    )
    _print_summary(summary)
    typer.echo(f"answers: {out}")
    if not summary.answers:
        raise typer.Exit(1)


def _print_summary(summary: "PredictionSummary") -> None:
    kept = f" ({summary.num_kept} from before)" if summary.num_kept else ""
    typer.echo(f"{summary.num_rows} rows{kept}: {_describe_answers(summary.answers)}")
    if summary.num_again:
        typer.echo(f"{summary.num_again} not asked: the same command tries them again", err=True)
    reasons = sorted(summary.failures.items(), key=lambda pair: -pair[1])
    for reason, count in reasons[:_MAX_REASONS]:
        typer.echo(f"no answer: {count} {reason}", err=True)
    if summary.for_people:
        named = ", ".join(summary.for_people[:_MAX_NAMED])
        more = ", …" if len(summary.for_people) > _MAX_NAMED else ""
        typer.echo(f"{len(summary.for_people)} for a person: {named}{more}")
    for reason, count in summary.drops.counts.items():
        typer.echo(f"not used: {count} {reason}", err=True)


def _describe_answers(answers: dict[str, int]) -> str:
    if not answers:
        return "no answer at all"
    if len(answers) > _MAX_ANSWERS:
        return f"{sum(answers.values())} answered"
    return ", ".join(f"{name} {count}" for name, count in sorted(answers.items()))
