"""Your own task, in one file."""

from pathlib import Path

from groupwise.run.recipe import make_recipe

_TEMPLATES = Path(__file__).parent / "templates"

recipe = make_recipe(
    "groupwise.own_task.task:TASK",
    name="task",
    summary="Your own rows, answers and rewards (groupwise new DIR writes one to start from).",
    config_type="groupwise.own_task.config:TaskConfig",
    config_folder=_TEMPLATES,
    template_folder=_TEMPLATES,
)
