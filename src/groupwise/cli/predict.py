"""``groupwise predict``: judge new groups of pictures with a finished run."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from groupwise.cli.run import Debug, say
from groupwise.core import ProgressLine

if TYPE_CHECKING:
    from groupwise.pipeline import PredictionSummary

FinishedRun = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run.")]
_MAX_NAMED = 10
_MAX_REASONS = 5


def predict(
    run: FinishedRun,
    photos: Annotated[
        Path, typer.Argument(metavar="PHOTOS_DIR", help="Folder of groups, as the recipe takes it.")
    ],
    *,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="JSONL of verdicts.")],
    batch_size: Annotated[int, typer.Option(min=1, help="Groups judged together.")] = 8,
    debug: Debug = False,
) -> None:
    """Judge every group of a folder. Running it again continues: verdicts are kept.

    Exits with 1 if there is no verdict at all.
    """
    from groupwise.pipeline import predict_folder

    summary = predict_folder(
        run,
        photos,
        out=out,
        batch_size=batch_size,
        report_progress=ProgressLine("groups", say),
    )
    _print_summary(summary)
    typer.echo(f"verdicts: {out}")
    if not summary.verdicts:
        raise typer.Exit(1)


def _print_summary(summary: "PredictionSummary") -> None:
    counts = ", ".join(f"{name} {count}" for name, count in sorted(summary.verdicts.items()))
    kept = f" ({summary.num_kept} from before)" if summary.num_kept else ""
    typer.echo(f"{summary.num_groups} groups{kept}: {counts or 'no verdict at all'}")
    if summary.failures:
        num_failed = sum(summary.failures.values())
        typer.echo(f"{num_failed} without a verdict: the same command tries them again", err=True)
    for reason, count in Counter(summary.failures).most_common(_MAX_REASONS):
        typer.echo(f"no verdict: {count} {reason}", err=True)
    if summary.for_people:
        named = ", ".join(summary.for_people[:_MAX_NAMED])
        more = ", …" if len(summary.for_people) > _MAX_NAMED else ""
        typer.echo(f"{len(summary.for_people)} for a person: {named}{more}")
    for reason, count in summary.drops.counts.items():
        typer.echo(f"not used: {count} {reason}", err=True)
