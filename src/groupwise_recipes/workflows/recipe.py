"""Workflows: a policy writes a program over operators for each problem."""

from pathlib import Path

from groupwise.run.recipe import make_recipe

recipe = make_recipe(
    "groupwise_recipes.workflows.task:TASK",
    name="workflows",
    summary="Which program over operators answers this problem?",
    config_type="groupwise_recipes.workflows.config:WorkflowsConfig",
    config_folder=Path(__file__).parent / "configs",
)
