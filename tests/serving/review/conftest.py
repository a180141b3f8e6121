"""A server with a store and a page, and people with a browser's cookies who use it."""

import re
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from groupwise.feedback import FeedbackStore, Shown
from groupwise.serving.feedback import Desk

KEY = b"a secret of the tests"
FORM = re.compile(r'name="form" value="(\w+)"')
ANSWER = re.compile(r'name="answer" value="(\w+)"')


class Person:
    """Somebody at the page; ``page`` is what they see."""

    def __init__(self, url: str, name: str, token: str | None, **headers: str) -> None:
        self.client = httpx2.Client(base_url=url, timeout=30, headers=headers)
        self.page = self.client.get("/review/login").text
        self.entered = self.post("login", name=name, token=token or "")
        self.look()

    def look(self) -> str:
        """Load the page."""
        self.page = self.client.get("/review/").text
        return self.page

    def post(self, place: str, headers: dict[str, str] | None = None, **fields: str) -> Any:
        """Send a form of the page, as its scripts would."""
        found = FORM.search(self.page)
        fields = {"form": found[1] if found else ""} | fields
        origin = str(self.client.base_url).rstrip("/")
        sent = {"Origin": origin, "HX-Request": "true"} | (headers or {})
        reply = self.client.post(f"/review/{place}", data=fields, headers=sent)
        if reply.status_code == 200:
            self.page = reply.text
        return reply

    def say(self, label: str, **fields: str) -> Any:
        """Say what the right answer is."""
        return self.post("say", **({"answer": self.answer or "", "label": label} | fields))

    @property
    def answer(self) -> str | None:
        """The answer that they are asked about."""
        found = ANSWER.search(self.page)
        return found[1] if found else None


@pytest.fixture
def store(tmp_path):
    store = FeedbackStore(tmp_path / "kept")
    yield store
    store.close()


@pytest.fixture
def remember(store) -> Callable[..., Shown]:
    def remember_one(name: str, confidence: float = 0.5, contents=(), **other: Any) -> Shown:
        values = {"row": {"task": "doors"}, "session": "", "pictures": (), "prediction": "通过"}
        shown = Shown(
            **(dict(id=name, at_s=0.0, version="v1") | values | other), confidence=confidence
        )
        return store.remember(shown, contents)

    return remember_one


@pytest.fixture
def serve(start, store, predictor) -> Callable[..., httpx2.Client]:
    def serve_one(labels=None, **settings: Any) -> httpx2.Client:
        if labels is not None:
            predictor.labels = labels
        return start(desk=Desk(store, key=KEY), **settings)

    return serve_one


@pytest.fixture
def enter(serve) -> Callable[..., Person]:
    """Log somebody in; all of a test are at one server, started with the first one's settings."""
    served: list[httpx2.Client] = []

    def enter_one(
        name: str = "ann", token: str | None = None, labels=None, settings=None, **headers
    ) -> Person:
        if not served:
            given = {} if token is None else {"token": token}
            served.append(serve(labels, **given, **(settings or {})))
        return Person(str(served[0].base_url), name, token, **headers)

    return enter_one
