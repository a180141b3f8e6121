"""A run of on_task with its data and a judge, for all that is handed to other trainers."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from faulty_server import FaultyServer
from handed_over import judge_by_content, prepare_judged_run


@pytest.fixture(scope="session")
def judge_server() -> Iterator[FaultyServer]:
    """What judges by content."""
    server = FaultyServer(judge_by_content)
    yield server
    server.close()


@pytest.fixture(scope="session")
def judged_run(judge_server: FaultyServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run; only to be read."""
    return prepare_judged_run(tmp_path_factory.mktemp("judged"), judge_server)


@pytest.fixture
def own_run(judged_run: Path, tmp_path: Path) -> Path:
    """A copy that may be changed."""
    return Path(shutil.copytree(judged_run, tmp_path / "run"))
