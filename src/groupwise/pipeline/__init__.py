"""Recipes as steps: reused when nothing they depend on changed, continued when interrupted.

Knows nothing about models, data or training; a recipe brings those as callables.
"""

from groupwise.pipeline.plans import UNKNOWN, Planner, digest_models
from groupwise.pipeline.recipe import (
    Preview,
    PreviewTable,
    Recipe,
    RewardSource,
    Sampler,
    ShownRow,
    find_config,
    find_recipe,
    find_recipe_of,
    find_recipes,
    list_configs,
)
from groupwise.pipeline.reward_audit import AUDIT_REWARDS
from groupwise.pipeline.run import check_recipe, list_changed_settings, run_recipe
from groupwise.pipeline.runner import (
    Siblings,
    StepProgress,
    StepState,
    are_done,
    mark_done,
    run_steps,
)
from groupwise.pipeline.steps import Step, StepContext

__all__ = [
    "AUDIT_REWARDS",
    "UNKNOWN",
    "Planner",
    "Preview",
    "PreviewTable",
    "Recipe",
    "RewardSource",
    "Sampler",
    "ShownRow",
    "Siblings",
    "Step",
    "StepContext",
    "StepProgress",
    "StepState",
    "are_done",
    "check_recipe",
    "digest_models",
    "find_config",
    "find_recipe",
    "find_recipe_of",
    "find_recipes",
    "list_changed_settings",
    "list_configs",
    "mark_done",
    "run_recipe",
    "run_steps",
]
