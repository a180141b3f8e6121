"""A server that fails, and taught policies."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from faulty_server import FaultyServer

from groupwise.models.policy import Policy, load_policy


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    server = FaultyServer()
    yield server
    server.close()


@pytest.fixture(scope="session")
def vision(taught_folder: Path) -> Policy:
    return load_policy(taught_folder)


@pytest.fixture(scope="session")
def text(taught_text_folder: Path) -> Policy:
    return load_policy(taught_text_folder)
