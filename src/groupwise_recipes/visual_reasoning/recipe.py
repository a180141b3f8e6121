"""Visual reasoning: statements and questions about pictures, reasoned about with boxes."""

from pathlib import Path

from groupwise.flow import make_recipe

recipe = make_recipe(
    "groupwise_recipes.visual_reasoning.task:TASK",
    name="visual_reasoning",
    summary="Is what the picture shows what is said of it, and does the reasoning hold?",
    config_type="groupwise_recipes.visual_reasoning.config:VisualConfig",
    config_folder=Path(__file__).parent / "configs",
)
