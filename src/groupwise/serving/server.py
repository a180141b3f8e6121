"""Running the application: one process, stopped gracefully by SIGTERM or Ctrl-C."""

import tempfile
from contextlib import suppress
from pathlib import Path

import uvicorn

from groupwise.serving.app import build_app
from groupwise.serving.predictor import Predictor
from groupwise.serving.settings import ServeSettings


def serve(predictor: Predictor, settings: ServeSettings, *, version: str, folder: Path) -> None:
    """Serve until the process is told to stop; uploads go to ``folder`` and nowhere else.

    Requests that were taken by then are answered within ``settings.stop_timeout_s``.

    Args:
        predictor: what answers.
        settings: addresses and limits.
        version: of the model, told with every answer.
        folder: for the pictures of running requests.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tempfile.tempdir = str(folder)  # large parts of a form are spooled to where this points
    config = uvicorn.Config(
        build_app(predictor, settings, version=version, folder=folder),
        host=settings.host,
        port=settings.port,
        log_level="warning",
        timeout_keep_alive=5,
        timeout_graceful_shutdown=int(settings.stop_timeout_s),
        h11_max_incomplete_event_size=64 * 1024,
    )
    with suppress(KeyboardInterrupt):  # uvicorn hands the signal on once all is answered
        uvicorn.Server(config).run()
