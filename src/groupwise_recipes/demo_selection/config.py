"""Settings of the demo_selection recipe, as written in its YAML files."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from groupwise.core import Config, Harmless, Source
from groupwise.inference.settings import ServerSettings
from groupwise.models.settings import ModelSettings
from groupwise.run.settings import RunConfig
from groupwise_recipes.demo_selection.answerer import Teaching
from groupwise_recipes.demo_selection.candidate_audit import CandidateLimits
from groupwise_recipes.demo_selection.pools import Sampler
from groupwise_recipes.demo_selection.recording import RecordingSettings
from groupwise_recipes.demo_selection.settings import (
    RewardMode,
    SelectorGrpoSettings,
    SelectorRceSettings,
    SelectorSettings,
)
from groupwise_recipes.demo_selection.vqa import PUBLISHED_VQA, FewShotForm

_AT_ONCE = Harmless(
    "how many prompts are asked at once: greedy answers do not depend on it",
    "推理批大小：不影响贪心解码的答案",
)
_TEACH = asdict(Teaching())


class DrawnDialects(Config):
    """The small drawn world: what a question asks for is shown by the right demonstration alone.

    Attributes:
        num_train: items that demonstrations are taken from.
        num_anchors: queries that the selector is trained on.
        num_validation, num_test: queries that it is not trained on.
    """

    retired: ClassVar = {"revised_share": (0.5,), "former_share": (0.5,)}

    num_train: int = Field(default=800, ge=2, le=10_000_000)
    num_anchors: int = Field(default=400, ge=1, le=10_000_000)
    num_validation: int = Field(default=100, ge=1, le=10_000_000)
    num_test: int = Field(default=400, ge=1, le=10_000_000)


class VqaFiles(Config):
    """The official files of one split of OK-VQA or VQA v2.

    Attributes:
        questions: ``…OpenEnded_mscoco_<subset>_questions.json``.
        annotations: ``…mscoco_<subset>_annotations.json``.
        pictures: folder with COCO's pictures.
    """

    questions: Annotated[Path, Source("data")]
    annotations: Annotated[Path, Source("data")]
    pictures: Annotated[Path, Source("data")]


class VqaQuestions(Config):
    """Questions of OK-VQA or VQA v2.

    Attributes:
        train: that demonstrations, anchors and validation queries are taken from; no query is ever
            in its own pool.
        test: that test queries are drawn from.
        num_anchors, num_validation, num_test: queries, drawn by the seed.
    """

    train: VqaFiles
    test: VqaFiles
    num_anchors: int = Field(default=800, ge=1, le=10_000_000)
    num_validation: int = Field(default=200, ge=1, le=10_000_000)
    num_test: int = Field(default=800, ge=1, le=10_000_000)


class DemoData(Config):
    """Where questions and demonstrations come from; one of the two.

    Attributes:
        drawn: the small drawn world.
        vqa: official files.
        recorded: a published file of recorded lists, which are trained on instead of lists that
            would be tried here. Its queries are the anchors and, as many as ``num_validation``
            says, those of validation; their questions must be those of the data.
    """

    retired: ClassVar = {"recorded_pools": (None,)}

    drawn: DrawnDialects | None = None
    vqa: VqaQuestions | None = None
    recorded: Annotated[Path | None, Source("data")] = None

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        if (self.drawn is None) == (self.vqa is None):
            raise ValueError("give data.drawn or data.vqa, and not both")
        return self

    @property
    def questions(self) -> DrawnDialects | VqaQuestions:
        """What there is of the two."""
        found = self.drawn or self.vqa
        assert found is not None
        return found


class FormSettings(Config):
    """How a prompt with demonstrations is written; see ``FewShotForm``.

    Attributes:
        question: an example without its answer: the places ``{question}`` and ``{pictures}``.
        between: what stands between examples.
        system: what the system turn says; None: there is none.
    """

    retired: ClassVar = {"before_answer": ("",)}
    question: str = PUBLISHED_VQA.question
    between: str = PUBLISHED_VQA.between
    system: str | None = None

    def make(self) -> FewShotForm:
        """Return the form."""
        return FewShotForm(**self.model_dump())


class AskingSettings(Config):
    """How the answerer is asked; greedily.

    Attributes:
        max_new_tokens: of an answer.
        batch_size: prompts per forward pass.
    """

    retired: ClassVar = {"picture_mib": (0, 1024)}

    max_new_tokens: int = Field(default=5, ge=1, le=1_000_000)
    batch_size: Annotated[int, _AT_ONCE] = Field(default=32, ge=1, le=65_536)


class FeatureSettings(Config):
    """What pictures and questions are compared by.

    Attributes:
        base: folder or hub id of a ``CLIPModel``; None: a tiny one is trained on the drawn world.
    """

    retired: ClassVar = {"num_steps": (150,)}

    base: str | None = None


class PoolSettings(Config):
    """The pool that lists are picked from, drawn alike in training, evaluation and use.

    Attributes:
        sampler: which train items are in a query's pool.
        size: K.
    """

    retired: ClassVar = {"num_near": (256,)}

    sampler: Sampler = "random"
    size: int = Field(default=64, ge=2)


class ListEvaluation(Config):
    """Which cells are evaluated.

    Attributes:
        shots: demonstrations of a list.
        sizes: of the named subsets of the test split; the largest is what the report is of.
        every_epoch: whether RCE and GRPO are evaluated after each epoch, not after their last only.
    """

    shots: tuple[Annotated[int, Field(ge=1)], ...] = Field(default=(1, 2, 3, 4), min_length=1)
    sizes: tuple[Annotated[int, Field(ge=1)], ...] = Field(default=(400,), min_length=1)
    every_epoch: bool = False


class AnsweringModel(ModelSettings):
    """The frozen answerer.

    Attributes:
        base: as for any model; where the answerer is served it is not looked at and may be left
            out.
    """

    base: Annotated[str, Source("base_weights")] = ""


class DemoSelectionConfig(RunConfig):
    """The whole job.

    Attributes:
        model: the frozen answerer.
        server: where the answerer is served; None: it runs in this process.
        teach_steps: in which the tiny answerer is taught, if ``model.base`` is tiny, and twice as
            many as the tiny CLIP model has, if ``features.base`` is not given. With fewer than 100,
            to try a run out, nobody checks that the answerer looks words up in demonstrations.
        form: how a prompt is written.
        asking: how the answerer is asked.
        pools: drawn for every query.
        recording: which lists are tried.
        refuse_poor: stop where recorded candidates have next to nothing to learn from, instead of
            a warning.
        reward: how hard and soft values make a reward.
        selector: the pointer network.
        rce: its warm-up.
        record_again: whether the selector after RCE records the candidates of GRPO anew.
        grpo: its training on rewards.
        evaluation: which cells are evaluated.
    """

    retired: ClassVar = {
        "teach": (_TEACH,),
        "limits": (asdict(CandidateLimits()),),
        "grpo_from_epoch": (None,),
    }

    model: AnsweringModel = AnsweringModel()
    data: DemoData
    server: ServerSettings | None = None
    teach_steps: int = Field(default=300, ge=1)
    form: FormSettings = FormSettings()
    asking: AskingSettings = AskingSettings()
    features: FeatureSettings = FeatureSettings()
    pools: PoolSettings = PoolSettings()
    recording: RecordingSettings = RecordingSettings()
    refuse_poor: bool = True
    reward: RewardMode = "hard_plus_soft"
    selector: SelectorSettings = SelectorSettings()
    rce: SelectorRceSettings = SelectorRceSettings()
    record_again: bool = True
    grpo: SelectorGrpoSettings = SelectorGrpoSettings()
    evaluation: ListEvaluation = ListEvaluation()

    @model_validator(mode="after")
    def _check_parts(self) -> Self:
        if self.features.base is None and self.data.drawn is None:
            raise ValueError(
                "features.base: give a CLIPModel; the tiny one knows drawn scenes only"
            )
        if self.server is None and not self.model.base:
            raise ValueError("give model.base, or the server of an answerer")
        if self.is_taught and self.data.drawn is None:
            raise ValueError("model.base: the tiny answerer is taught on drawn scenes only")
        if self.data.recorded is not None and self.record_again:
            raise ValueError("record_again: data.recorded is what GRPO is trained on; set it false")
        num_test = self.data.questions.num_test
        if max(self.evaluation.sizes) > num_test:
            raise ValueError(f"evaluation.sizes: at most {num_test}, the test items there are")
        return self

    @property
    def limits(self) -> CandidateLimits:
        """What recorded candidates must be like."""
        return CandidateLimits() if self.refuse_poor else CandidateLimits(0, 1, 1)

    @property
    def is_taught(self) -> bool:
        """Whether the answerer is a tiny one that is taught in the run."""
        return self.server is None and self.model.is_tiny
