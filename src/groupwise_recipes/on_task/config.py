"""Settings of the on_task recipe, as written in its YAML files."""

from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from groupwise.core import BUDGET, Config, Harmless, Source, describe_unknown
from groupwise.data.columns import ALLOWED, find_place_problem
from groupwise.inference.settings import ModelSource
from groupwise.judges import JudgeSettings
from groupwise.rewards import LabelParser
from groupwise.run.settings import DataSettings, FlowConfig
from groupwise.training.settings import SftSettings
from groupwise_drawn.desktops.activities import ACTIVITIES

LABELS = ("on-task", "off-task")
DRAWN = "drawn"
"""Where drawn screens come from."""
BOOTSTRAP = "bootstrap"
"""Where rows come from that the recipe of this name made."""
READABLE_PIXELS = 200_000
"""Of a picture in which the words of a screen can still be read."""

_CACHED = Harmless("a verdict from the cache is the verdict", "缓存中的裁决与重新裁决相同")
_READ = Harmless("words from the cache are the words", "缓存中的文字与重新识别的相同")


class DrawnSettings(Config):
    """Screens drawn by the generator.

    Attributes:
        num_sessions: 0 draws none.
        join_real: with a root: draw all the same, for the warm-up only.
        screens_per_session: screens with one theme and one task.
        activities: kinds of work that are drawn; an off-task pair takes two of them.
        clutter: in [0, 1]; how many other windows there are and how alike things look.
    """

    num_sessions: int = Field(default=0, ge=0, le=10_000_000)
    join_real: bool = False
    screens_per_session: int = Field(default=2, ge=1, le=4096)
    activities: tuple[str, ...] = ACTIVITIES
    languages: tuple[Literal["en", "zh"], ...] = Field(default=("en", "zh"), min_length=1)
    clutter: float = Field(default=0.5, ge=0, le=1)
    width: int = Field(default=640, ge=160, le=4096)
    height: int = Field(default=480, ge=120, le=4096)

    @model_validator(mode="after")
    def _check_activities(self) -> Self:
        for name in self.activities:
            if name not in ACTIVITIES:
                raise ValueError(f"activities: {describe_unknown('activity', name, ACTIVITIES)}")
        if len(set(self.activities)) < 2:
            raise ValueError("activities: two are needed, to make off-task pairs of")
        return self


class ScreenWordsSettings(Config):
    """The words at the top of a screen as a part of the prompt.

    Attributes:
        num_characters: that the prompt shows at most; what is longer is cut.
        cache: file of words that several runs may share; None: one in the step's folder. A server
            reads every screen anew.
    """

    retired: ClassVar = {"cache_mib": (256.0,)}
    num_characters: int = Field(default=80, ge=1, le=4096)
    cache: Annotated[Path | None, _READ] = None


class OnTaskData(DataSettings):
    """Where the screens come from and how they are split; sessions are never divided.

    Attributes:
        root: folder of screenshots; None: the drawn ones are all there is. With a root none are
            drawn unless ``drawn.join_real`` asks for it.
        allow_outside: take pictures outside the root, which rows may name by ``..``, by absolute
            paths or through links; otherwise such rows are refused.
        drawn: screens to draw.
        train_folds, test_folds: split by the ``fold`` of the rows; None: by shares of sessions.
        warmup_share, validation_share, test_share: of the sessions (with folds: of the training
            sessions, and the test share is not used); the rest is for GRPO. A warm-up share of 0
            uses the GRPO sessions for the warm-up, too.
        pairs_per_screen: tasks that each screen of validation, test and GRPO is paired with.
        stored_pixels: pictures are stored scaled down to at most this many pixels.
        screen_words: words that are read on screens before they are stored and stand in the prompt
            as ``{{ words }}``; it needs ``pip install 'groupwise[ocr]'``. None: nothing is read.
        mirror_invariant: on a screen, left and right do not change what somebody works on.
    """

    root: Annotated[Path | None, Source("data")] = None
    allow_outside: Annotated[bool, ALLOWED] = False
    drawn: DrawnSettings = DrawnSettings()
    train_folds: tuple[int, ...] | None = None
    test_folds: tuple[int, ...] | None = None
    warmup_share: float = Field(default=0.3, ge=0, lt=1)
    validation_share: float = Field(default=0.1, gt=0, lt=1)
    test_share: float = Field(default=0.2, gt=0, lt=1)
    pairs_per_screen: int = Field(default=2, ge=1, le=4096)
    stored_pixels: int = Field(default=1_000_000, ge=28 * 28)
    screen_words: ScreenWordsSettings | None = None
    mirror_invariant: bool = True

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        if self.root is None and self.drawn.num_sessions == 0:
            raise ValueError("there is no data: set data.root or data.drawn.num_sessions")
        if (self.train_folds is None) != (self.test_folds is None):
            raise ValueError("data.train_folds and data.test_folds go together")
        if self.train_folds is not None and self.root is None:
            raise ValueError("drawn screens have no folds: leave out data.train_folds")
        if set(self.train_folds or ()) & set(self.test_folds or ()):
            raise ValueError("a fold is in both data.train_folds and data.test_folds")
        if self.near_duplicates == "join" and self.train_folds is not None:
            raise ValueError("data.near_duplicates: join needs a split by shares, without folds")
        if self.warmup_share + self.validation_share + self.test_share >= 1:
            raise ValueError("the shares of data leave no sessions for GRPO")
        return self

    @model_validator(mode="after")
    def _check_drawn_size(self) -> Self:
        width, height = self.drawn.width, self.drawn.height
        if self.screen_words and self.is_drawing and width * height < READABLE_PIXELS:
            raise ValueError(
                f"data.drawn: got {width} x {height} pixels; data.screen_words reads words, which "
                f"needs {READABLE_PIXELS:,} or more"
            )
        return self

    @property
    def is_drawing(self) -> bool:
        """Whether screens are drawn: there are no real ones, or they are to be joined."""
        return self.drawn.num_sessions > 0 and (self.root is None or self.drawn.join_real)

    def list_shares(self) -> dict[str, float]:
        """Return the share of the sessions by split; with folds, of the training sessions."""
        shares = {"validation": self.validation_share}
        if self.warmup_share:
            shares["warmup"] = self.warmup_share
        if self.train_folds is None:
            shares["test"] = self.test_share
        return {**shares, "train": 1 - sum(shares.values())}


class WarmupSettings(SftSettings):
    """SFT with descriptions: what is on the screen, what the task is, and the label.

    Attributes:
        pairs_per_screen: of real screens, drawn again in every epoch; drawn ones that join them
            have one.
        written_tasks: probability that a task's text is replaced by a written one of the same
            activity.
        labelled_share: of the sessions with known activities whose decision is taught, too; the
            others teach their description only, and the decisions are left to GRPO.
    """

    retired: ClassVar = {"drawn_pairs_per_screen": (1,)}
    pairs_per_screen: Annotated[int, BUDGET] = Field(default=2, ge=1, le=4096)
    written_tasks: float = Field(default=0.0, ge=0, le=1)
    labelled_share: float = Field(default=1.0, ge=0, le=1)


class RewardWeights(Config):
    """Weights of the reward parts; only their proportion counts.

    Attributes:
        classification: of the right label.
        judge: of the judge's probability of the given label; without a judge it goes to the others.
        visual_verifier: of the label that the words on the screen speak for; above 0 it needs
            ``pip install 'groupwise[ocr]'``. Where they decide nothing it goes to the others.
        format: of an answer in the right form, whatever it says.
    """

    classification: float = Field(default=0.3, gt=0)
    judge: float = Field(default=0.5, ge=0)
    visual_verifier: float = Field(default=0.0, ge=0)
    format: float = Field(default=0.0, ge=0)


class OnTaskJudgeSettings(ModelSource):
    """The model that judges, and how it is asked.

    Attributes:
        language: of the prompt and the options.
        cache: file of replies that several runs may share; None: one in the step's folder.
        settings: retries, and when too many questions without a verdict stop the run.
    """

    retired: ClassVar = {"cache_mib": (256.0,)}
    language: Literal["en", "zh"] = "en"
    cache: Annotated[Path | None, _CACHED] = None
    settings: JudgeSettings = JudgeSettings()


class VisualVerifierSettings(Config):
    """The rule that reads the words on screens.

    Attributes:
        is_baseline: it stands among the baselines of the report, whether or not it pays.
    """

    retired: ClassVar = {"cache": (None,), "cache_mib": (256.0,)}
    is_baseline: bool = False


class OnTaskConfig(FlowConfig):
    """The whole job; without ``judge`` the labels alone are rewarded.

    Attributes:
        answer: with two labels of any language, first that of screens that are on-task. Rows of
            data say ``on-task`` and ``off-task`` all the same.
        prompt: the question, a template with the place ``{{ task }}``, and with ``{{ words }}`` if
            there are ``data.screen_words``; it names both labels.
        sft: the warm-up with descriptions; None: GRPO starts from the base.
    """

    data: OnTaskData
    answer: LabelParser = LabelParser(labels=LABELS, describe=("Screen", "Task"))
    prompt: str = "Task: {{ task }}\nIs this screen on-task or off-task?"
    rewards: RewardWeights = RewardWeights()
    judge: OnTaskJudgeSettings | None = None
    visual_verifier: VisualVerifierSettings = VisualVerifierSettings()
    sft: WarmupSettings | None

    @property
    def has_verifier(self) -> bool:
        """Whether words on screens are read: to reward, or for a baseline."""
        return self.rewards.visual_verifier > 0 or self.visual_verifier.is_baseline

    @model_validator(mode="after")
    def _check_words(self) -> Self:
        if self.has_verifier and self.data.stored_pixels < READABLE_PIXELS:
            raise ValueError(
                f"data.stored_pixels: got {self.data.stored_pixels:,}; the visual verifier reads "
                f"words, which needs {READABLE_PIXELS:,} or more"
            )
        return self

    @model_validator(mode="after")
    def _check_warmup(self) -> Self:
        if self.sft is not None:
            return self
        if self.data.warmup_share:
            raise ValueError("data.warmup_share must be 0 where sft is null: nothing warms up")
        if self.data.root is not None and self.data.is_drawing:
            raise ValueError("data.drawn.join_real is for the warm-up, and sft is null")
        return self

    @model_validator(mode="after")
    def _check_labels(self) -> Self:
        labels = self.answer.labels
        if len(labels) != len(LABELS) or labels == LABELS[::-1]:
            raise ValueError(
                f"answer.labels: got {list(labels)}; expected on-task's, then off-task's"
            )
        places = {"task"} if self.data.screen_words is None else {"task", "words"}
        problem = find_place_problem(self.prompt, needed=places)
        unnamed = [label for label in labels if label not in self.prompt]
        if problem or unnamed:
            raise ValueError(f"prompt: {problem or f'it does not name the label {unnamed[0]!r}'}")
        return self
