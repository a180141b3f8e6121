"""Which data sets a run takes its rows from, as written in its YAML file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field

from groupwise.core import Config, Source
from groupwise_drawn.relations import Style
from groupwise_recipes.visual_reasoning.rows import Split


class DrawnScenes(Config):
    """Scenes of two things, drawn in pairs that differ in the truth of one statement.

    Attributes:
        num_pairs: for training, the warm-up's among them; an eighth as many for validation.
        num_test_pairs: for the test in each style, of things that do not meet in other splits.
        style: of the pictures of training and validation.
        test_styles: of those of the test.
        side: width and height of pictures in pixels.
    """

    num_pairs: int = Field(default=1200, ge=12, le=10_000_000)
    num_test_pairs: int = Field(default=150, ge=3, le=10_000_000)
    style: Style = "flat"
    test_styles: tuple[Style, ...] = Field(default=("flat",), min_length=1)
    side: int = Field(default=128, ge=64, le=4096)


class PublishedRows(Config):
    """A data set in its published form.

    Attributes:
        path: the file or the folder, as its loader in ``sources`` says.
        pictures: folder with the pictures; a row without a picture cannot be asked about.
        splits: what each published split is used for; others are left out.
    """

    path: Annotated[Path, Source("data")]
    pictures: Annotated[Path | None, Source("data")] = None
    splits: Mapping[Split, Split] = {
        "train": "train",
        "validation": "validation",
        "test": "test",
    }


class AOkvqaRows(PublishedRows):
    """A-OKVQA, whose test has no answers and whose boxes are of another file.

    Attributes:
        coco: ``instances_train2017.json`` and the like, by published split.
        interleaved: files of DrivingVQA's form, by published split.
    """

    splits: Mapping[Split, Split] = {"train": "train", "validation": "test"}
    coco: Annotated[Mapping[Split, Path], Source("data")] = {}
    interleaved: Annotated[Mapping[Split, Path], Source("data")] = {}


class DrivingVqaRows(PublishedRows):
    """DrivingVQA, which has no validation split."""

    splits: Mapping[Split, Split] = {"train": "train", "test": "test"}
