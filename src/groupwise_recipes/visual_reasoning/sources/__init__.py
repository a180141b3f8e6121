"""The published data sets of the studies, each read in its own published form.

Every record is a row or a drop with a counted reason. Pictures may be left out where only text is
studied; where a folder of pictures is given, each row's picture has to be in it.
"""

from groupwise_recipes.visual_reasoning.sources.aokvqa import load_aokvqa
from groupwise_recipes.visual_reasoning.sources.drivingvqa import load_drivingvqa
from groupwise_recipes.visual_reasoning.sources.joined_boxes import (
    BoxSource,
    CocoBoxes,
    InterleavedBoxes,
)
from groupwise_recipes.visual_reasoning.sources.judged import add_judged
from groupwise_recipes.visual_reasoning.sources.own import load_own
from groupwise_recipes.visual_reasoning.sources.rel3d import load_rel3d
from groupwise_recipes.visual_reasoning.sources.settings import (
    AOkvqaRows,
    DrawnScenes,
    DrivingVqaRows,
    PublishedRows,
)
from groupwise_recipes.visual_reasoning.sources.spatialsense import load_spatialsense
from groupwise_recipes.visual_reasoning.sources.vsr import load_vsr

__all__ = [
    "AOkvqaRows",
    "BoxSource",
    "CocoBoxes",
    "DrawnScenes",
    "DrivingVqaRows",
    "InterleavedBoxes",
    "PublishedRows",
    "add_judged",
    "load_aokvqa",
    "load_drivingvqa",
    "load_own",
    "load_rel3d",
    "load_spatialsense",
    "load_vsr",
]
