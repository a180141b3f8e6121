"""Visual reasoning: statements and questions about pictures, reasoned about with boxes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from groupwise.run.recipe import make_recipe


def _report_study(
    runs: Sequence[Path], folder: Path, language: Literal["en", "zh"]
) -> Sequence[str]:
    from groupwise_recipes.visual_reasoning.study import write_study

    return write_study(runs, folder, language=language)


recipe = make_recipe(
    "groupwise_recipes.visual_reasoning.task:TASK",
    name="visual_reasoning",
    summary="Is what the picture shows what is said of it, and does the reasoning hold?",
    config_type="groupwise_recipes.visual_reasoning.config:VisualConfig",
    config_folder=Path(__file__).parent / "configs",
    report_study=_report_study,
)
