"""Demonstration selection: a pointer network picks and orders the examples of a few-shot prompt."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from groupwise.run.recipe import make_recipe


def _report_study(
    runs: Sequence[Path], folder: Path, language: Literal["en", "zh"]
) -> Sequence[str]:
    from groupwise_recipes.demo_selection.study import write_study

    return write_study(runs, folder, language=language)


recipe = make_recipe(
    "groupwise_recipes.demo_selection.task:TASK",
    name="demo_selection",
    summary="Which demonstrations, in which order, make a frozen model answer best?",
    config_type="groupwise_recipes.demo_selection.config:DemoSelectionConfig",
    config_folder=Path(__file__).parent / "configs",
    headline="vqa_mean",
    report_study=_report_study,
)
