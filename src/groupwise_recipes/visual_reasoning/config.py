"""Settings of the visual_reasoning recipe, as written in its YAML files."""

from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from groupwise.core import Config, Source
from groupwise.data.columns import find_place_problem
from groupwise.inference.settings import ModelSource, RetrySettings, Sampling
from groupwise.judges import JudgeSettings, StopSettings
from groupwise.run.settings import DataSettings, FlowConfig
from groupwise.training.settings import SftSettings
from groupwise_recipes.visual_reasoning.rows import FALSE, TRUE
from groupwise_recipes.visual_reasoning.sources import (
    AOkvqaRows,
    DrawnScenes,
    DrivingVqaRows,
    PublishedRows,
)

ExtraInput = Literal["depth", "boxes"]
TAGS = ("think", "answer")
LABELS = (TRUE, FALSE)
CHECKPOINTS = {"base": "prompt", "sft": "sft", "grpo": "grpo"}
"""By what ``checkpoint`` says, the policy of a trained run that such a model stands for."""
PUBLISHED = ("vsr", "rel3d", "spatialsense", "drivingvqa", "aokvqa", "rows")


class VisualData(DataSettings):
    """Where questions come from: any of these, together.

    Attributes:
        drawn: scenes that are drawn.
        vsr, rel3d, spatialsense, drivingvqa, aokvqa: published sets; where their files are.
        rows: folder with ``train.jsonl``, ``validation.jsonl`` and ``test.jsonl`` of rows as
            ``write_rows`` writes them.
        validation_share: of the training clusters, which become validation where no set has one.
        warmup_share: of the training clusters, which are left to the warm-up alone; without one it
            is not used.
        keep: share of each relation's less frequent answer that training keeps (``bias_rows``);
            validation and test stay as they are, so that every variant is looked at by the same
            items. None: all of it, and results are not told by what the bias says.
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
    keep: float | None = Field(default=None, ge=0, le=1)

    @property
    def published(self) -> dict[str, PublishedRows]:
        """The sets that are read, by name."""
        found = {name: getattr(self, name) for name in PUBLISHED}
        return {name: one for name, one in found.items() if one is not None}

    @property
    def has_choices(self) -> bool:
        """Whether questions with choices are asked, beside statements or alone."""
        return self.aokvqa is not None or self.drivingvqa is not None

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
        descriptions: whether it is also taught, for each picture with boxes, what is in them and
            where, from left to right, with full names.
        traces: a finished run of this recipe; what its GRPO policy answers when it is sampled is
            taught instead. None: ``targets``.
        traces_kept: of them, all or those with the right answer.
    """

    targets: Literal["boxes", "words", "answer"] = "boxes"
    descriptions: bool = False
    traces: Annotated[Path | None, Source("data")] = None
    traces_kept: Literal["all", "correct"] = "correct"


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


class AlignmentSettings(Config):
    """What judges whether reasoning entails its answer.

    Attributes:
        judge: ``rule``: by rules made for the words of drawn scenes; ``model``: a language model.
        model: in this process or behind a server; of ``judge: model``.
        language: that the model is asked in; rules read both.
        sampling: of its replies. At a temperature of 0 a reply of the wrong form would be the same
            each time it is asked for again.
        settings: how often it is asked before there is no verdict, and what share of those stops
            the run: by default none does, they are counted.
    """

    retired: ClassVar = {"cache_mib": (256.0,)}
    judge: Literal["rule", "model"] = "rule"
    model: ModelSource | None = None
    language: Literal["en", "zh"] = "en"
    sampling: Sampling = Sampling(max_new_tokens=512, temperature=0.3)
    settings: JudgeSettings = JudgeSettings(
        retry=RetrySettings(max_attempts=3), stop=StopSettings(max_no_verdict_rate=1.0)
    )

    @model_validator(mode="after")
    def _check_model(self) -> Self:
        if (self.judge == "model") != (self.model is not None):
            raise ValueError("give alignment.model with alignment.judge: model, and only then")
        return self

    def describe(self) -> str:
        """Return what judges, for people."""
        if self.model is None:
            return "by rules for drawn scenes, no model"
        server = self.model.server
        return str(self.model.model) if server is None else f"{server.model} at {server.url}"


class VisualConfig(FlowConfig):
    """The whole job.

    Attributes:
        vision_epochs: of a tiny base: passes over the warm-up's drawn pictures in which its vision
            encoder learns what is in them, before it learns any language; 0: none.
        prompt: of a statement: template with the place ``{{ text }}``, behind the picture.
        choice_prompt: of a question with choices: likewise, and ``{{ choices }}`` for their lines.
        inputs: what is shown beside the picture: its depth picture as a second one (``depth``), the
            reference boxes in words (``boxes``); a row without them is dropped.
        rewards: weights of the parts.
        alignment: what judges whether reasoning entails its answer; None: rules where all scenes
            are drawn, nothing elsewhere.
        checkpoint: what ``model.base`` is where it was published and is measured alone: the
            ``base`` of these settings, or what SFT or GRPO made by them. Nothing is trained then.
    """

    data: VisualData
    sft: WarmupSettings | None
    vision_epochs: int = Field(default=0, ge=0, le=100_000)
    prompt: str = "Is the following statement true: {{ text }}"
    choice_prompt: str = "{{ text }}\n{{ choices }}\nGive the letters of all right choices."
    inputs: tuple[ExtraInput, ...] = ()
    rewards: RewardWeights = RewardWeights()
    alignment: AlignmentSettings | None = None
    checkpoint: Literal["base", "sft", "grpo"] | None = None

    @model_validator(mode="after")
    def _check_alignment(self) -> Self:
        found = choose_alignment(self)
        if found is not None and found.judge == "rule" and self.data.published:
            raise ValueError("alignment.judge: rule reads drawn scenes alone; take judge: model")
        if found is None and self.rewards.alignment > 0:
            raise ValueError("rewards.alignment needs a judge: set alignment")
        return self

    @model_validator(mode="after")
    def _check_vision(self) -> Self:
        if self.vision_epochs and not (self.model.is_tiny and self.sft):
            raise ValueError(
                "vision_epochs teaches a tiny base by the pictures of the warm-up; "
                "leave it out for other bases and without sft"
            )
        return self

    @model_validator(mode="after")
    def _check_inputs(self) -> Self:
        if "boxes" in self.inputs and self.rewards.box_iou > 0:
            raise ValueError(
                "inputs: the boxes stand in the prompt, and rewards.box_iou would pay for copying "
                "them; set rewards.box_iou: 0 or leave boxes out of inputs"
            )
        return self

    @model_validator(mode="after")
    def _check_prompts(self) -> Self:
        told = {"prompt": {"text"}, "choice_prompt": {"text", "choices"}}
        for name, needed in told.items():
            problem = find_place_problem(getattr(self, name), needed=needed)
            if problem:
                raise ValueError(f"{name}: {problem}")
        return self


def choose_alignment(config: VisualConfig) -> AlignmentSettings | None:
    """Return what judges reasoning; None: nothing does."""
    if config.alignment is None and not config.data.published:
        return AlignmentSettings()
    return config.alignment
