"""``groupwise serve``: a finished run behind HTTP."""

import os
from typing import Annotated

import typer

from groupwise.cli.compare import split_run
from groupwise.cli.predict import FinishedRun
from groupwise.cli.run import Debug, Settings
from groupwise.core import ConfigError, load_config

TOKEN_VARIABLE = "GROUPWISE_TOKEN"


def serve(
    run: FinishedRun,
    *,
    settings: Settings = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the settings and the run; serve nothing.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Serve a finished run: POST /v1/predict, /healthz, /readyz, /metrics, /docs.

    Settings are given with --set, such as --set port=9000 or --set max_waiting=32. If the variable
    GROUPWISE_TOKEN is set, askers must send it as a bearer token.
    """
    try:
        from groupwise.serving.server import serve as serve_predictor
    except ImportError as error:
        raise ConfigError(
            f"serving needs {error.name}", fix="pip install 'groupwise[serve]'"
        ) from error
    from groupwise.flow import name_version, open_run
    from groupwise.serving import ServeSettings

    token = os.environ.get(TOKEN_VARIABLE)
    given = {} if token is None else {"token": token}
    resolved = load_config(ServeSettings, given, overrides=settings or [])
    folder, policy = split_run(run)
    found = open_run(folder)
    predictor = found.open_predictor(policy)
    guarded = "with a token" if resolved.token else "without a token"
    typer.echo(f"{found.recipe.name} of {run} on http://{resolved.host}:{resolved.port}, {guarded}")
    if dry_run:
        typer.echo("ready: nothing was served")
        return
    version = name_version(predictor)
    serve_predictor(predictor, resolved, version=version, folder=folder / "serving")
    typer.echo("stopped")
