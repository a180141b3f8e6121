"""One tiny run for all that is done with finished ones."""

import shutil
from pathlib import Path

import pytest
from finished_run import finished

__all__ = ["finished"]


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    """A copy of it that may be changed."""
    return Path(shutil.copytree(finished, tmp_path / "moved" / "run"))
