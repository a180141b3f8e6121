"""``groupwise export``: a run's evaluation in the formats that other tools read."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from groupwise.cli.compare import split_run
from groupwise.cli.run import Debug
from groupwise.core import ConfigError

_ENDINGS = {"parquet": ".parquet", "csv": ".csv"}


def export(
    run: Annotated[str, typer.Argument(metavar="RUN[:POLICY]", help="A run, or one policy of it.")],
    *,
    file_format: Annotated[
        Literal["parquet", "lm-eval", "csv"],
        typer.Option("--format", help="lm-eval: a folder as lm-evaluation-harness writes it."),
    ] = "parquet",
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE_OR_DIR", help="A file; for lm-eval a folder.")
    ],
    debug: Debug = False,
) -> None:
    """Write a run's evaluation for other tools: every item as a row, or harness-style results."""
    from groupwise.evaluation.interchange import (
        read_records,
        write_csv,
        write_lm_eval,
        write_parquet,
    )

    folder, policy = split_run(run)
    if file_format == "lm-eval" and out.is_file():
        raise ConfigError(f"--out {out} is a file", expected="a folder for --format lm-eval")
    records = read_records(folder, policy=policy)
    if file_format == "lm-eval":
        written = write_lm_eval(out, records)
    else:
        path = out / f"{records.name}{_ENDINGS[file_format]}" if out.is_dir() else out
        (write_parquet if file_format == "parquet" else write_csv)(path, records)
        written = [path]
    policies = ", ".join(records.policies)
    typer.echo(f"{len(records.predictions)} predictions of {policies}")
    for path in written:
        typer.echo(f"written: {path}")
