"""A tiny run of workflows: real steps, a real model, a stub behind the operators."""

import pytest
from faulty_server import MODEL
from made_once import make_once
from recipe_runs import RecipeJob
from sandbox_host import skip_without_sandbox
from scripted_reflector import ScriptedReflector
from tables import read_tables

TABLES = read_tables(__file__)
TINY = TABLES["tiny"]


BETTER = "Think first.\n{{ problem }}\nEntry point: {{ entry_point }}"
_GEPA = "{{model: {{server: {{url: '{}', model: {}}}}}, policy: sft, {}}}"
_SMALL = "num_validation: 2"


def finish(folder):
    """Do the tiny run; a script stands for the model that reflects."""
    reflector = ScriptedReflector(["no place for a problem", BETTER])
    try:
        gepa = _GEPA.format(reflector.url, MODEL, _SMALL)
        return RecipeJob("workflows", {**TINY, "gepa": gepa}).finish(folder)
    finally:
        reflector.close()


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory):
    """The tiny run, finished; only to be read."""
    skip_without_sandbox()
    return make_once("workflows", tmp_path_factory, lambda to: finish(to / "run")) / "run"
