"""On-task: does this screenshot show work on the described task?"""

from pathlib import Path

from groupwise.run.recipe import make_recipe

recipe = make_recipe(
    "groupwise_recipes.on_task.task:TASK",
    name="on_task",
    summary="Is this screenshot on-task for this task description?",
    config_type="groupwise_recipes.on_task.config:OnTaskConfig",
    config_folder=Path(__file__).parent / "configs",
)
