"""A server with a store and a page, and people with a browser's cookies who use it."""

from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from stand_in import Person

from groupwise.feedback import Shown
from groupwise.serving.feedback import Desk

KEY = b"a secret of the tests"


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
