"""Bootstrap: pictures without labels, captions, work scenarios, a judge's labels, easy first."""

from pathlib import Path
from typing import TYPE_CHECKING

from groupwise.run.recipe import Preview, Recipe
from groupwise.run.steps import Step

if TYPE_CHECKING:
    from groupwise_recipes.on_task.bootstrap.config import BootstrapConfig


def _plan(config: "BootstrapConfig", run: Path) -> list[Step]:
    from groupwise_recipes.on_task.bootstrap.stages import plan_stages

    return plan_stages(config)


def _preview(config: "BootstrapConfig") -> Preview:
    from groupwise_recipes.on_task.bootstrap.stages import preview_run

    return preview_run(config)


recipe = Recipe(
    name="bootstrap",
    summary="Pictures without labels become rows for on_task, labelled by a judge.",
    config_type="groupwise_recipes.on_task.bootstrap.config:BootstrapConfig",
    config_folder=Path(__file__).parent / "configs",
    plan=_plan,
    preview=_preview,
)
