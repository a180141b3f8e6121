"""A tiny group_qc run: real steps, real models, a handful of drawn groups."""

import pytest
from made_once import make_once
from recipe_runs import RecipeJob
from tables import read_tables
from tile_photos import write_photos

TABLES = read_tables(__file__)
TINY = TABLES["tiny"]


@pytest.fixture(scope="session")
def job():
    """The tiny run, to be started."""
    return RecipeJob("group_qc", TINY)


@pytest.fixture(scope="session")
def tiny_run(job, tmp_path_factory):
    """The tiny run, finished; only to be read."""
    return make_once("group_qc", tmp_path_factory, lambda to: job.finish(to / "run")) / "run"


@pytest.fixture
def root(tmp_path):
    """Real files in real folders: ten groups that pass and ten that fail."""
    return write_photos(tmp_path / "photos")
