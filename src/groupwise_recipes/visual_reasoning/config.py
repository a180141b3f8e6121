"""Settings of the visual_reasoning recipe, as written in its YAML files."""

from typing import Literal, Self

from pydantic import Field, model_validator

from groupwise.core import Config
from groupwise.data import find_place_problem
from groupwise.flow import DataSettings, FlowConfig
from groupwise.models import TINY_TOKEN_SIDE
from groupwise.training import SftSettings
from groupwise_recipes.visual_reasoning.rows import FALSE, TRUE
from groupwise_recipes.visual_reasoning.sources import (
    AOkvqaRows,
    DrawnScenes,
    DrivingVqaRows,
    PublishedRows,
)

TAGS = ("think", "answer")
LABELS = (TRUE, FALSE)
PUBLISHED = ("vsr", "rel3d", "spatialsense", "drivingvqa", "aokvqa", "rows")


class VisualData(DataSettings):
    """Where questions come from: any of these, together.

    Attributes:
        drawn: scenes that are drawn.
        vsr, rel3d, spatialsense, drivingvqa, aokvqa: published sets; where their files are.
        rows: folder with ``train.jsonl``, ``validation.jsonl`` and ``test.jsonl`` of rows as
            ``write_rows`` writes them.
        validation_share: of the training clusters, which become validation where no set has one.
        warmup_share: of the training clusters, which are left to the warm-up alone.
    """

    drawn: DrawnScenes | None = None
    vsr: PublishedRows | None = None
    rel3d: PublishedRows | None = None
    spatialsense: PublishedRows | None = None
    drivingvqa: DrivingVqaRows | None = None
    aokvqa: AOkvqaRows | None = None
    rows: PublishedRows | None = None
    validation_share: float = Field(default=0.1, gt=0, lt=1)
    warmup_share: float = Field(default=0.7, gt=0, lt=1)

    @property
    def published(self) -> dict[str, PublishedRows]:
        """The sets that are read, by name."""
        found = {name: getattr(self, name) for name in PUBLISHED}
        return {name: one for name, one in found.items() if one is not None}

    @model_validator(mode="after")
    def _check_some(self) -> Self:
        if self.drawn is None and not self.published:
            raise ValueError(f"name a data set: data.drawn or data.{', data.'.join(PUBLISHED)}")
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
