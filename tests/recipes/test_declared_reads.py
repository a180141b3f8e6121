"""Every stage of every recipe sees the settings that it declares, and fails on any other.

That what a stage declares suffices is shown where its work is done with that same view: by the
tiny runs of ``on_task/test_run.py``, ``group_qc/test_run.py`` and ``task/test_task.py``, each of
which checks that it did the work of every stage there is.
"""

from dataclasses import replace

import pytest
from plan_keys import write_done
from recipe_plans import PLANS, make_plan

from groupwise.core import Config, load_config
from groupwise.pipeline import find_config, find_recipe, find_recipes, run_steps


def load(name):
    recipe, config, settings = PLANS[name]
    found = find_recipe(recipe)
    return load_config(found.load_config_type(), find_config(found, config), overrides=settings)


def list_paths(section, prefix=""):
    for name in type(section).model_fields:
        value = getattr(section, name)
        if isinstance(value, Config):
            yield from list_paths(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def read(config, path):
    for name in path.split("."):
        config = getattr(config, name)
    return config


def is_declared(step, path):
    return any(path == one or path.startswith(f"{one}.") for one in step.reads)


def say_refused(step, path):
    """Return the sentence about a setting: it names the outermost section that is not declared."""
    parts = path.split(".")
    outer = (".".join(parts[:end]) for end in range(1, len(parts) + 1))
    name = next(p for p in outer if not any(f"{one}.".startswith(f"{p}.") for one in step.reads))
    return f"step '{step.name}' reads {name} but does not list it in reads"


def test_every_recipe_is_looked_at():
    # A round is planned from its loop; tests/learning runs its stages with their views.
    assert {recipe for recipe, _, _ in PLANS.values()} == set(find_recipes()) - {"round"}


@pytest.mark.parametrize("name", PLANS)
def test_each_stage_sees_what_it_declares_and_nothing_else(name, tmp_path):
    config = load(name)
    for step in make_plan(name, tmp_path):
        for path in list_paths(config):
            if is_declared(step, path):
                assert read(step.config, path) == read(config, path)
            else:
                with pytest.raises(ValueError) as refused:  # noqa: PT011 (the words are compared)
                    read(step.config, path)
                assert str(refused.value) == say_refused(step, path)


@pytest.mark.parametrize("name", PLANS)
def test_a_stage_whose_work_reads_another_setting_stops_the_run(name, tmp_path):
    steps = make_plan(name, tmp_path)
    paths = list(list_paths(load(name)))
    for number, step in enumerate(steps):
        path = next(one for one in paths if not is_declared(step, one))
        greedy = replace(step, run=lambda context, path=path: read(context.config, path))
        before = [replace(one, run=write_done, files=()) for one in steps[:number]]
        run = tmp_path / step.name
        run.mkdir()
        with pytest.raises(ValueError, match=say_refused(step, path)):
            run_steps([*before, greedy], run)
