"""Where the real files are."""

import os
from pathlib import Path

import pytest

SHARED = Path(__file__).parents[3] / ".." / "shared" / "data"


@pytest.fixture(scope="session")
def real_vsr():
    """Return the folder of VSR, or skip."""
    folder = Path(os.environ.get("GROUPWISE_DATA", SHARED)) / "vsr"
    if not folder.is_dir():
        pytest.skip(f"needs the set vsr; there is no {folder} (set GROUPWISE_DATA)")
    return folder
