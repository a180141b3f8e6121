"""Tiny runs of recipes (real steps, real models, a handful of drawn items), and made servers."""

from contextlib import ExitStack

import pytest
from faulty_server import FaultyServer
from made_once import make_once
from recipe_runs import RecipeJob
from tables import read_tables

TINY = read_tables(__file__)


@pytest.fixture(scope="module")
def job(request):
    """The tiny run of the recipe whose folder a test is in, to be started."""
    recipe = request.path.parent.name
    return RecipeJob(recipe, TINY[recipe])


@pytest.fixture(scope="module")
def tiny_run(job, tmp_path_factory):
    """The tiny run, finished; only to be read."""
    return make_once(job.recipe, tmp_path_factory, lambda to: job.finish(to / "run")) / "run"


@pytest.fixture
def serve():
    """Start servers, each with what answers requests; they end with the test."""
    with ExitStack() as servers:

        def start(answer):
            server = FaultyServer(answer)
            servers.callback(server.close)
            return server

        yield start
