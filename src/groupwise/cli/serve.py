"""``groupwise serve``: a finished run behind HTTP."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from groupwise.cli.compare import split_run
from groupwise.cli.feedback import open_store, read_person_key
from groupwise.cli.run import AllowJudge, Debug, Settings
from groupwise.core import ConfigError, load_config

if TYPE_CHECKING:
    from groupwise.flow.finished import FinishedRun
    from groupwise.serving.bench import Screens
    from groupwise.serving.feedback import Desk
    from groupwise.serving.settings import FeedbackSettings, ServeSettings

TOKEN_VARIABLE = "GROUPWISE_TOKEN"


def serve(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN[:POLICY]|LOOP",
            help="A run, and which of its policies; or a folder with served.json.",
        ),
    ],
    *,
    settings: Settings = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the settings and the run; serve nothing.")
    ] = False,
    allow_judge: AllowJudge = None,
    debug: Debug = False,
) -> None:
    """Serve a finished run: POST /v1/predict, /healthz, /readyz, /metrics, /docs.

    A folder with served.json serves what that names, and POST /v1/reload looks there again.
    With --set feedback.folder=DIR answers are kept there, POST /v1/feedback takes what people say
    of them, and the page /review asks them.
    Settings are given with --set, such as --set port=9000 or --set max_waiting=32. If the variable
    GROUPWISE_TOKEN is set, askers must send it as a bearer token.
    """
    try:
        from groupwise.serving.server import serve as serve_source
    except ImportError as error:
        raise ConfigError(
            f"serving needs {error.name}", fix="pip install 'groupwise[serve]'"
        ) from error
    from groupwise.flow.served import find_source
    from groupwise.serving import ServeSettings

    token = os.environ.get(TOKEN_VARIABLE)
    given = {} if token is None else {"token": token}
    folder, policy = split_run(run)
    resolved = load_config(ServeSettings, given, overrides=settings or [])
    source = find_source(folder, policy)
    uploads = folder / "serving"
    screens = _find_screens(source.run, resolved, uploads)
    if dry_run:
        source.open()
    guarded = "with a token" if resolved.token else "without a token"
    typer.echo(
        f"{source.run.recipe.name} of {run} on http://{resolved.host}:{resolved.port}, {guarded}"
    )
    if dry_run:
        typer.echo("ready: nothing was served")
        return
    resolved = _ask_as_loop(resolved, folder)
    desk = _open_desk(resolved.feedback)
    serve_source(source, resolved, folder=uploads, desk=desk, screens=screens)
    typer.echo("stopped")


def _ask_as_loop(settings: "ServeSettings", folder: Path) -> "ServeSettings":
    """Return settings by which people are asked about what tests the loop in a folder."""
    if settings.feedback is None:
        return settings
    from groupwise.learning.loop import find_loop
    from groupwise.serving.settings import AskedSettings

    loop = find_loop(folder)
    if loop is None:
        return settings
    own = loop.settings
    asked = AskedSettings(
        seed=own.seed, test_share=own.test_share, per_session=own.asked_per_session
    )
    review = settings.feedback.review.model_copy(update={"asked": asked})
    feedback = settings.feedback.model_copy(update={"review": review})
    return settings.model_copy(update={"feedback": feedback})


def _find_screens(run: "FinishedRun", settings: "ServeSettings", folder: Path) -> "Screens | None":
    """Return what stands behind a server of screens; None where rows are none."""
    from groupwise.flow.served import open_judge
    from groupwise.serving.bench import Screens

    own = settings.screens
    if not run.task.has_screens:
        if own.judge is not None:
            raise ConfigError(
                f"screens.judge is set, but {run.recipe.name} has no screens to label"
            )
        return None
    return Screens(
        judge=open_judge(run, own.judge, folder=folder) if own.ask_judge_below > 0 else None
    )


def _open_desk(settings: "FeedbackSettings | None") -> "Desk | None":
    if settings is None:
        return None
    key = read_person_key()
    store = open_store(settings.folder, settings.url, max_items=settings.max_items, is_new=True)
    from groupwise.serving.feedback import Desk

    return Desk(store, key=key)
