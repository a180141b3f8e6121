"""A real server in a thread of this process, with a predictor that stands in for a policy."""

import io
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn
from PIL import Image

from groupwise.core import (
    DataError,
    Example,
    Message,
    make_example,
    open_picture,
    read_picture,
)
from groupwise.serving import Answer, Opened, Request, ServeSettings
from groupwise.serving.app import build_app
from groupwise.serving.bench import Screens
from groupwise.serving.feedback import Desk
from groupwise.serving.server import make_server_config


class StandIn:
    """Passes pictures of which the first is green, and rows that say so; it answers by these alone.

    Attributes:
        delay_s: how long a batch takes.
        batches: the ids of each batch that was answered.
        broken: ids that it breaks on.
    """

    labels = ("通过", "不通过")

    def __init__(self) -> None:
        self.delay_s = 0.0
        self.batches: list[list[str]] = []
        self.broken: set[str] = set()

    def describe(self) -> Mapping[str, Any]:
        return {"name": "stand-in"}

    def make_question(self, request: Request, folder: Path) -> Example:
        assert folder.is_dir()
        task = request.row.get("task")
        if task not in ("门检查", "doors"):
            raise DataError(f"there is no task {task!r}")
        pictures = [read_picture(path) for path in request.pictures]
        return make_example([Message("user", task)], cluster=request.id, pictures=pictures)

    def answer(self, questions: Sequence[Example]) -> list[Answer]:
        names = [question.cluster for question in questions]
        self.batches.append(names)
        time.sleep(self.delay_s)
        if self.broken.intersection(names):
            raise ZeroDivisionError("broken on purpose")
        return [self._answer(question) for question in questions]

    def _answer(self, question: Example) -> Answer:
        if not question.pictures:
            return Answer("?", None, "no label", needs_person=True)
        red, green, _ = open_picture(question.pictures[0]).getpixel((0, 0))
        label = "通过" if green > red else "不通过"
        details = {"num_pictures": len(question.pictures)}
        return Answer(f"{label}!", label, "颜色", 0.9, False, details)


class Shelf:
    """Names and opens versions of the stand-in.

    Attributes:
        version: that is named now.
        predictors: by version; one is opened as often as it is asked for.
        problem: raised instead of opening one.
        delay_s: how long opening takes.
    """

    def __init__(self, predictor: Any) -> None:
        self.version = "v1"
        self.predictors: dict[str, Any] = {"v1": predictor}
        self.problem: Exception | None = None
        self.delay_s = 0.0

    def find_version(self) -> str:
        return self.version

    def open(self) -> Opened:
        time.sleep(self.delay_s)
        if self.problem is not None:
            raise self.problem
        return Opened(self.predictors[self.version], self.version)


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
    running: list[tuple[uvicorn.Server, threading.Thread]] = []
    complaints = logging.getLogger("uvicorn.error")  # they do not reach the root

    def start_one(
        *, desk: Desk | None = None, behind: Screens | None = None, **settings: Any
    ) -> httpx2.Client:
        folder = tmp_path / "uploads"
        folder.mkdir(exist_ok=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        limits = ServeSettings(port=port, **settings)
        app = build_app(shelf, limits, folder=folder, desk=desk, screens=behind)
        server = uvicorn.Server(make_server_config(app, limits))
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        running.append((server, thread))
        client = httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=30)
        for _ in range(500):
            try:
                # Not kept: a server may give up an idle one just when it is used again.
                if client.get("/readyz", headers={"Connection": "close"}).status_code == 200:
                    complaints.addHandler(caplog.handler)  # those that were there are taken away
                    return client
            except httpx2.TransportError:
                pass
            time.sleep(0.02)
        raise AssertionError("the server did not become ready")

    yield start_one
    for server, thread in running:
        server.should_exit = True
        thread.join(timeout=30)
    complaints.removeHandler(caplog.handler)
