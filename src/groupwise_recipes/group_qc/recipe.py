"""Group QC: photos described one by one (Stage A), their group judged (Stage B)."""

from pathlib import Path
from typing import TYPE_CHECKING

from groupwise.flow import make_recipe
from groupwise.pipeline import PredictionSource
from groupwise_recipes.group_qc.verdicts import MISSED

if TYPE_CHECKING:
    from groupwise.pipeline import FoundGroups
    from groupwise.serving import GroupPredictor
    from groupwise_recipes.group_qc.config import GroupQcConfig


def open_predictor(config: "GroupQcConfig", run: Path) -> "GroupPredictor":
    """Return what judges new groups with a finished run."""
    from groupwise_recipes.group_qc.predictor import GroupQcPredictor

    return GroupQcPredictor(config, run)


def list_groups(config: "GroupQcConfig", photos: Path) -> "FoundGroups":
    """Return the groups of a folder of photos."""
    from groupwise_recipes.group_qc.predictor import list_groups as list_found

    return list_found(config, photos)


recipe = make_recipe(
    "groupwise_recipes.group_qc.task:TASK",
    name="group_qc",
    summary="Does this group of inspection photos pass?",
    config_type="groupwise_recipes.group_qc.config:GroupQcConfig",
    config_folder=Path(__file__).parent / "configs",
    prediction=PredictionSource(open_predictor, list_groups),
    headline=MISSED,
)
