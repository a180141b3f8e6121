"""``groupwise serve``: a finished run behind HTTP."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from groupwise.cli.compare import split_run
from groupwise.cli.feedback import open_store, read_person_key
from groupwise.cli.predict import FinishedRun
from groupwise.cli.run import Debug, Settings
from groupwise.core import ConfigError, load_config

if TYPE_CHECKING:
    from groupwise.serving.feedback import Desk
    from groupwise.serving.settings import FeedbackSettings

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

    With --set feedback.folder=DIR answers are kept there, POST /v1/feedback takes what people say
    of them, and the page /review asks them.
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
    desk = _open_desk(resolved.feedback, predictor.labels, version)
    serve_predictor(predictor, resolved, version=version, folder=folder / "serving", desk=desk)
    typer.echo("stopped")


def _open_desk(
    settings: "FeedbackSettings | None", labels: Sequence[str], version: str
) -> "Desk | None":
    if settings is None:
        return None
    key = read_person_key()
    store = open_store(settings.folder, settings.url, max_items=settings.max_items, is_new=True)
    from groupwise.serving.feedback import Desk

    return Desk(store, key=key, labels=labels, version=version)
