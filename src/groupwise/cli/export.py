"""``groupwise export``, ``export-model`` and ``push``: a run's rows and policies for others."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Literal

import typer

from groupwise.cli.compare import split_run
from groupwise.cli.run import Debug
from groupwise.core import ConfigError


def export(
    run: Annotated[str, typer.Argument(metavar="RUN[:POLICY]", help="A run, or one policy of it.")],
    *,
    file_format: Annotated[
        Literal["chat", "verl", "swift"],
        typer.Option(
            "--format",
            help="chat: prompts of --rows; verl, swift: a folder for a training with it.",
        ),
    ],
    rows: Annotated[
        Path | None,
        typer.Option(
            "--rows", metavar="FILE|FOLDER", help="For chat: rows as `predict` takes them."
        ),
    ] = None,
    out: Annotated[
        Path,
        typer.Option("--out", metavar="FILE_OR_DIR", help="A file; for verl and swift a folder."),
    ],
    debug: Debug = False,
) -> None:
    """Write what other tools need of a run.

    With --format chat: the prompts of new rows, as messages that any chat API takes. With
    --format verl or swift: the rows and rewards of GRPO, and a script that trains on them there.
    """
    folder, policy = split_run(run)
    if (file_format == "chat") != (rows is not None):
        raise ConfigError("--format chat and --rows go together")
    if rows is not None:
        _export_prompts(folder, policy, rows, out)
    elif file_format != "chat":
        _export_for_trainer(folder, policy, out, file_format)


def _export_prompts(folder: Path, policy: str | None, rows: Path, out: Path) -> None:
    from groupwise.flow.finished import open_run
    from groupwise.flow.prediction import write_prompts

    number = write_prompts(open_run(folder), rows, out=out, policy=policy)
    typer.echo(f"{number} prompts")
    typer.echo(f"written: {out}")


def _export_for_trainer(
    folder: Path, policy: str | None, out: Path, trainer: Literal["verl", "swift"]
) -> None:
    from groupwise.flow.finished import open_run
    from groupwise.flow.trainers import export_for_trainer

    if policy is not None:
        raise ConfigError(f"--format {trainer} takes a run", got=f"its policy {policy}")
    opened = open_run(folder)
    done = export_for_trainer(opened, out, trainer)
    typer.echo(", ".join(f"{count} rows of {name}" for name, count in done.num_rows.items()))
    for reason, count in done.drops.counts.items():
        typer.echo(f"left out: {count} ({reason})")
    for path in done.files:
        typer.echo(f"written: {path}")
    if opened.config.sft is not None:
        typer.echo(f"start: groupwise export-model {folder} --policy sft --out {out / 'model'}")


Chosen = Annotated[
    str | None,
    typer.Option(
        "--policy",
        metavar="NAME",
        help="Of the run, such as sft or grpo/checkpoint-40.",
        show_default="the one its report is about",
    ),
]


def export_model(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    *,
    policy: Chosen = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="A new folder.")],
    debug: Debug = False,
) -> None:
    """Write the adapter, the merged weights and the model card of a run's policy."""
    from groupwise.flow.exporting import export_run
    from groupwise.flow.finished import open_run

    exported = export_run(open_run(run), out, policy=policy)
    if exported.adapter is not None:
        typer.echo(f"adapter: {exported.adapter} (base: {exported.base})")
    typer.echo(
        f"merged: {exported.merged} ({exported.dtype}, as the base), log-probabilities within "
        f"{exported.max_difference:.1g} of the policy's; rounding alone gives {exported.noise:.1g}"
    )
    if exported.quantization is not None:
        typer.echo(f"its base is in {exported.quantization}: merged has what these bits stand for")
    typer.echo(f"card: {out / 'README.md'}")
    for command in exported.list_commands():
        typer.echo(command)


def push(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A finished run.")],
    name: Annotated[str, typer.Argument(metavar="OWNER/NAME", help="Of the hub's repository.")],
    *,
    policy: Chosen = None,
    private: Annotated[bool, typer.Option("--private", help="If the repository is new.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would go up; upload nothing.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Upload what export-model writes to a hub: weights and model card, no row of the data.

    The hub is that of HF_ENDPOINT, the token that of HF_TOKEN.
    """
    from groupwise.flow.exporting import check_pushable, export_run, list_uploads, upload
    from groupwise.flow.finished import open_run

    found = open_run(run)
    check_pushable(found, policy)
    with TemporaryDirectory() as folder:
        export_run(found, Path(folder) / "model", policy=policy)
        files = list_uploads(Path(folder) / "model")
        for place, path in files.items():
            typer.echo(f"{path.stat().st_size:>13,} bytes  {place}")
        if dry_run:
            typer.echo("nothing was uploaded")
            return
        typer.echo(f"uploaded: {upload(files, name, is_private=private)}")
