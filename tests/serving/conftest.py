"""A real server in a thread of this process, with a predictor that stands in for a policy."""

import contextlib
import io
import logging
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest
from PIL import Image
from stand_in import Shelf, StandIn, serve_in_thread

from groupwise.feedback import FeedbackStore
from groupwise.serving.bench import Screens
from groupwise.serving.feedback import Desk


@pytest.fixture
def predictor() -> StandIn:
    return StandIn()


@pytest.fixture
def shelf(predictor: StandIn) -> Shelf:
    return Shelf(predictor)


@pytest.fixture
def draw() -> Callable[..., bytes]:
    def draw_one(colour: str = "green", form: str = "JPEG", size=(32, 24), mode="RGB") -> bytes:
        buffer = io.BytesIO()
        Image.new("RGB", size, colour).convert(mode).save(buffer, form)
        return buffer.getvalue()

    return draw_one


@pytest.fixture
def start(shelf: Shelf, tmp_path, caplog) -> Iterator[Callable[..., httpx2.Client]]:
    """Start a server with settings and return a client of it; caplog has what it complains of."""
    complaints = logging.getLogger("uvicorn.error")  # they do not reach the root
    with contextlib.ExitStack() as running:

        def start_one(
            *, desk: Desk | None = None, behind: Screens | None = None, **settings: Any
        ) -> httpx2.Client:
            folder = tmp_path / "uploads"
            folder.mkdir(exist_ok=True)
            served = serve_in_thread(shelf, folder, settings, desk=desk, screens=behind)
            client = running.enter_context(served)
            complaints.addHandler(caplog.handler)  # those that were there are taken away
            return client

        yield start_one
    complaints.removeHandler(caplog.handler)


@pytest.fixture
def store(tmp_path) -> Iterator[FeedbackStore]:
    store = FeedbackStore(tmp_path / "kept")
    yield store
    store.close()


@pytest.fixture
def read_metric() -> Callable[[httpx2.Client, str], float]:
    """Return the sum of a server's metrics whose names begin alike."""

    def read(client: httpx2.Client, name: str) -> float:
        lines = client.get("/metrics").text.splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))

    return read
