"""Settings of the visual_reasoning recipe, as written in its YAML files."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from groupwise.core import Config, Source
from groupwise.data import find_place_problem
from groupwise.flow import DataSettings, FlowConfig
from groupwise.models import TINY_TOKEN_SIDE
from groupwise.training import SftSettings
from groupwise_recipes.visual_reasoning.rows import FALSE, TRUE

TAGS = ("think", "answer")
LABELS = (TRUE, FALSE)


class DrawnScenes(Config):
    """Scenes of two things, drawn in pairs that differ in the truth of one statement.

    Attributes:
        num_pairs: for training, the warm-up's among them; an eighth as many for validation.
        num_test_pairs: for the test, of things that do not meet in the other splits.
        style, test_style: of the pictures of training and validation, and of the test.
        side: width and height of pictures in pixels.
    """

    num_pairs: int = Field(default=1200, ge=12)
    num_test_pairs: int = Field(default=150, ge=3)
    style: Literal["flat", "textured"] = "flat"
    test_style: Literal["flat", "textured"] = "flat"
    side: int = Field(default=128, ge=64)


class VisualData(DataSettings):
    """Where questions come from.

    Attributes:
        rows: folder with ``train.jsonl``, ``validation.jsonl`` and ``test.jsonl`` of rows as
            ``write_rows`` writes them.
        drawn: scenes that are drawn instead.
        warmup_share: of the training clusters, which are left to the warm-up alone.
    """

    rows: Annotated[Path | None, Source("data")] = None
    drawn: DrawnScenes | None = None
    warmup_share: float = Field(default=0.7, gt=0, lt=1)

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        if (self.rows is None) == (self.drawn is None):
            raise ValueError("give data.rows or data.drawn, and not both")
        return self


class WarmupSettings(SftSettings):
    """SFT on written reasoning.

    Attributes:
        targets: what is taught: boxes of what the statement is about and what holds of them
            (``boxes``), what holds alone (``words``), or the answer without any (``answer``).
    """

    targets: Literal["boxes", "words", "answer"] = "boxes"


class RewardWeights(Config):
    """Weights of the reward parts; only their proportion counts, and 0 leaves one out.

    Attributes:
        accuracy: of the right answer.
        format: of ``<think>…</think><answer>…</answer>``, whatever it says.
        box_iou: of the boxes in the reasoning, against the reference boxes.
        alignment: of reasoning that entails the answer, be it right or wrong.
    """

    accuracy: float = Field(default=0.5, ge=0)
    format: float = Field(default=0.0, ge=0)
    box_iou: float = Field(default=0.5, ge=0)
    alignment: float = Field(default=0.0, ge=0)


class VisualConfig(FlowConfig):
    """The whole job.

    Attributes:
        prompt: template with the place ``{{ text }}``, behind the picture.
        rewards: weights of the parts.
    """

    data: VisualData
    sft: WarmupSettings
    prompt: str = "Is the following statement true: {{ text }}"
    rewards: RewardWeights = RewardWeights()

    @model_validator(mode="after")
    def _check_prompt(self) -> Self:
        problem = find_place_problem(self.prompt, needed={"text"})
        if problem:
            raise ValueError(f"prompt: {problem}")
        return self

    @model_validator(mode="after")
    def _check_size(self) -> Self:
        drawn, model = self.data.drawn, self.model
        if drawn is not None and not (
            model.is_tiny
            and drawn.side % TINY_TOKEN_SIDE == 0
            and drawn.side**2 <= model.max_pixels
        ):
            raise ValueError(
                "data.drawn.side: the model would see pictures of another size, and boxes are not "
                "put into its coordinates yet; take a tiny base, a multiple of 128 and a "
                "model.max_pixels of at least its square"
            )
        return self
