"""``groupwise push``: the policy of a finished run to a hub."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from groupwise.cli.export_model import Chosen
from groupwise.cli.run import Debug


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
    from groupwise.flow import check_pushable, export_run, list_uploads, open_run, upload

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
