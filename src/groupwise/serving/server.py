"""Running the application: one process, stopped gracefully by SIGTERM or Ctrl-C."""

import resource
import tempfile
import warnings
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn
from fastapi import FastAPI
from PIL import Image

from groupwise.serving.app import build_app
from groupwise.serving.bench import Screens
from groupwise.serving.connections import Connection
from groupwise.serving.settings import ServeSettings
from groupwise.serving.source import Source

if TYPE_CHECKING:
    from groupwise.serving.feedback import Desk

_MAX_FILES = 2**16


def serve(
    source: Source,
    settings: ServeSettings,
    *,
    folder: Path,
    desk: "Desk | None" = None,
    screens: Screens | None = None,
) -> None:
    """Serve until the process is told to stop; uploads go to ``folder`` and nowhere else.

    Requests that were taken by then are answered within ``settings.stop_timeout_s``.

    Args:
        source: of what answers.
        settings: addresses and limits.
        folder: for the pictures of running requests.
        desk: takes feedback.
        screens: what stands behind /v1/screens; None: there is no such route.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # Pixels have limits of their own, and whoever sends large pictures would fill the log.
    warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)
    tempfile.tempdir = str(folder)  # large parts of a form are spooled to where this points
    app = build_app(source, settings, folder=folder, desk=desk, screens=screens)
    with suppress(KeyboardInterrupt):  # uvicorn hands the signal on once all is answered
        uvicorn.Server(make_server_config(app, settings)).run()


def make_server_config(app: FastAPI, settings: ServeSettings) -> uvicorn.Config:
    """Return how an application is served, within the files that the process may open."""
    num_connections = min(settings.max_connections, _allow_files() // 2)
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http=Connection,
        ws="none",
        loop="asyncio",
        log_level="error",
        limit_concurrency=num_connections,
        backlog=max(num_connections // 4, 16),  # accepted at a stroke, before any head is read
        timeout_keep_alive=settings.head_timeout_s,
        timeout_graceful_shutdown=int(settings.stop_timeout_s),
        h11_max_incomplete_event_size=64 * 1024,
    )


def _allow_files() -> int:
    """Return how many files may be open at once, after asking for as many as are allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = _MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return allowed
