"""Group QC: photos described one by one (Stage A), their group judged (Stage B)."""

from pathlib import Path

from groupwise.run.recipe import make_recipe
from groupwise_recipes.group_qc.verdicts import MISSED

recipe = make_recipe(
    "groupwise_recipes.group_qc.task:TASK",
    name="group_qc",
    summary="Does this group of inspection photos pass?",
    config_type="groupwise_recipes.group_qc.config:GroupQcConfig",
    config_folder=Path(__file__).parent / "configs",
    headline=MISSED,
)
