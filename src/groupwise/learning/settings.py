"""The settings of a round, and of the loop that starts rounds."""

from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from groupwise.core import Config, Place, Seed, Source
from groupwise.data.augmentation import PictureAugmentation
from groupwise.feedback.sides import Sides
from groupwise.learning.promotion import LEVEL, MARGIN
from groupwise.run.settings import DataSettings, EvaluationSettings, FlowConfig
from groupwise.training.settings import GrpoSettings, SftSettings

SYNC_EVERY_STEPS, ENTROPY_BONUS, REPLAY, TRAINED_SHARE = 10, 0.01, 3.0, 0.5
# Baselines and a control of rounds that are there no more: they decided nothing.
_RETIRED = {"rivals": ([], ["memory"], ["memory", "nearest", "rules"]), "has_control": (False,)}
BLUR = 0.7
"""Of a variant's pictures: a radius of up to this many pixels."""
SYNONYMS = 0.5
"""Probability that a word of a variant with synonyms becomes one of them."""
_MOVED = Place("the same pictures, wherever they are kept", "图片相同，存放位置无关")


class VariantSettings(PictureAugmentation):
    """What is made of a correction beside itself.

    Attributes:
        num: variants of each.
    """

    retired: ClassVar = {"blur": (BLUR,), "synonyms": (SYNONYMS,)}

    num: int = Field(default=10, ge=0, le=1000)


class RoundData(DataSettings):
    """What a round learns from, and what it is measured on.

    Attributes:
        origin: the run that the loop began with: its training rows are replayed, and its test
            rows are the held-out set.
        items: JSONL of what people said, in sessions that teach.
        asked: JSONL of what people said, in sessions that test.
        pictures: folder of the pictures of both.
        sides: which sessions teach and which test.
        variants: of each correction.
        replay: training rows of the origin for each row that is learned from people.
    """

    origin: Annotated[Path, Source("data")]
    items: Annotated[Path, Source("data")]
    asked: Annotated[Path, Source("items")]
    pictures: Annotated[Path, _MOVED]
    sides: Sides
    variants: VariantSettings = VariantSettings()
    replay: float = Field(default=REPLAY, ge=0, le=1000)


class RoundConfig(FlowConfig):
    """A round; ``model`` is the served version, from which it goes on.

    Attributes:
        data: rows.
        served: name of that version; of one that is an adapter, ``model`` is what it merges to.
        candidate: number of the version that is trained here, from 1.
        level: of the whole loop: the probability of ever promoting what is no better.
        margin: how much worse the candidate may be on the held-out set.
        trained_share: of the way from the served weights to the trained ones.
    """

    retired: ClassVar = _RETIRED

    data: RoundData
    served: str
    candidate: int = Field(ge=1, le=1_000_000)
    level: float = Field(default=LEVEL, gt=0, lt=1)
    margin: float = Field(default=MARGIN, gt=0, lt=1)
    trained_share: float = Field(default=TRAINED_SHARE, gt=0, le=1)

    @model_validator(mode="after")
    def _check_share(self) -> Self:
        trained = [self.grpo.trainable, *([self.sft.trainable] if self.sft else [])]
        if self.trained_share < 1 and any(one.method == "prompt" for one in trained):
            raise ValueError(
                "virtual tokens have no average with a version that has none: "
                "set round.trained_share=1"
            )
        return self


class RoundSettings(Config):
    """How every round of a loop trains.

    Attributes:
        variants: of each correction.
        replay: training rows of the origin for each row that is learned from people.
        learn_from_judge: also learn the label of a judge that gives it at least this probability,
            where the policy answered otherwise and nobody spoke; None: from people alone.
        has_sft: teach the labels before GRPO: a policy that is sure of something does not sample
            anything else, so that no reward would ever speak against it.
        sft: how; None: as the origin, in one epoch.
        trained_share: of the way from the served weights to the trained ones at which the candidate
            is: most of what is learned stays, and little of what others had is lost (Wortsman et
            al. 2022, 2109.01903); 1: the trained weights themselves, as virtual tokens need.
        grpo: on the rewards of the origin; None: as the origin, in one epoch, with an entropy bonus
            of 0.01 and a sampling policy that follows every 10 steps.
        evaluation: how policies are asked; None: as the origin.
    """

    retired: ClassVar = _RETIRED

    variants: VariantSettings = VariantSettings()
    replay: float = Field(default=REPLAY, ge=0, le=1000)
    learn_from_judge: float | None = Field(default=None, ge=0, le=1)
    has_sft: bool = True
    sft: SftSettings | None = None
    trained_share: float = Field(default=TRAINED_SHARE, gt=0, le=1)
    grpo: GrpoSettings | None = None
    evaluation: EvaluationSettings | None = None

    def choose_sft(self, origin: FlowConfig) -> SftSettings | None:
        """Return the settings of SFT; None: there is none."""
        if not self.has_sft or self.sft is not None:
            return self.sft if self.has_sft else None
        if origin.sft is None:
            return SftSettings()
        known = origin.sft.model_dump(include=set(SftSettings.model_fields))
        return SftSettings(**{**known, "epochs": 1})

    def choose_grpo(self, origin: FlowConfig, num_rows: int) -> GrpoSettings:
        """Return the settings of GRPO."""
        if self.grpo is not None:
            return self.grpo
        known = origin.grpo
        num_prompts = max(1, min(known.prompts_per_step, num_rows))
        num_steps = max(1, min(SYNC_EVERY_STEPS, num_rows // num_prompts))
        changed = {
            "epochs": 1,
            "max_steps": None,
            "prompts_per_step": num_prompts,
            "steps_per_generation": num_steps * known.gradient_accumulation,
            "entropy_bonus": ENTROPY_BONUS,
        }
        return GrpoSettings(**{**known.model_dump(), **changed})


class LoopSettings(Config):
    """When rounds are started, and what they must show.

    Attributes:
        seed: of the loop: which sessions teach and which test.
        test_share: of the sessions that test.
        asked_per_session: answers of a session that tests which people are asked about, drawn by
            their ids; the session counts when they have said what all of these are.
        every: new labels in sessions that teach, before the next round.
        look_every: new sessions that test, before a candidate is looked at again.
        life: rounds' worth of labels for which a candidate stays undecided, before the next one.
        level: probability of ever promoting what is no better.
        margin: how much worse a candidate may be on the held-out set.
        round: how every round trains.
    """

    seed: Seed = 0
    test_share: float = Field(default=0.3, gt=0, lt=1)
    asked_per_session: int = Field(default=8, ge=1, le=10_000)
    every: int = Field(default=100, ge=1, le=1_000_000)
    look_every: int = Field(default=10, ge=1, le=1_000_000)
    life: int = Field(default=5, ge=1, le=1000)
    level: float = Field(default=LEVEL, gt=0, lt=1)
    margin: float = Field(default=MARGIN, gt=0, lt=1)
    round: RoundSettings = RoundSettings()
