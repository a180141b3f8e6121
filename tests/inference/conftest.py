"""A server that fails, taught policies, and groups of photos of mixed sizes."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from faulty_server import FaultyServer

from groupwise.core import Example
from groupwise.inference.stream import Group
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


@pytest.fixture(scope="session")
def photo_groups(
    picture_examples: list[Example], mixed_examples: list[Example], text_examples: list[Example]
) -> list[Group]:
    """Groups of 3, 0, 1, 5, 0 and 5 examples; one has no picture, the last have some anywhere."""
    examples = [*picture_examples[3:8], text_examples[1], *picture_examples[:3], *mixed_examples]
    sizes = iter((3, 0, 1, 5, 0, 5))
    groups, place = [], 0
    for number, size in enumerate(sizes):
        groups.append((f"组 {number}", examples[place : place + size]))
        place += size
    return groups
