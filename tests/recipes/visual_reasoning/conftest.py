"""Where the real files are."""

import os
from pathlib import Path

import pytest
from plan_keys import read_config

from groupwise_recipes.visual_reasoning.asking import prepare_rows

SHARED = Path(__file__).parents[3] / ".." / "shared" / "data"


@pytest.fixture(scope="session")
def real_vsr():
    """Return the folder of VSR, or skip."""
    folder = Path(os.environ.get("GROUPWISE_DATA", SHARED)) / "vsr"
    if not folder.is_dir():
        pytest.skip(f"needs the set vsr; there is no {folder} (set GROUPWISE_DATA)")
    return folder


@pytest.fixture(scope="session")
def prepared(tmp_path_factory):
    """The rows of 24 drawn pairs that train, and 6 that test; only to be read."""
    folder = tmp_path_factory.mktemp("pairs")
    small = ("data.drawn.num_pairs=24", "data.drawn.num_test_pairs=6")
    prepare_rows(read_config("visual_reasoning", "grounding", *small), folder)
    return folder
