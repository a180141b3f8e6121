"""A tiny on_task run: real steps, real models, a handful of drawn screens."""

import pytest
from made_once import make_once
from recipe_runs import RecipeJob
from tables import read_tables

TABLES = read_tables(__file__)
TINY = TABLES["tiny"]


@pytest.fixture(scope="session")
def job():
    """The tiny run, to be started."""
    return RecipeJob("on_task", TINY)


@pytest.fixture(scope="session")
def tiny_run(job, tmp_path_factory):
    """The tiny run, finished; only to be read."""
    return make_once("on_task", tmp_path_factory, lambda to: job.finish(to / "run")) / "run"
