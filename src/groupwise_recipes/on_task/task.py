"""What is on_task's own: screens paired with tasks, descriptions to warm up on, what judges."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from groupwise.core import Example, Finding, Message, digest_json, report_places
from groupwise.data.examples import DropLog
from groupwise.data.rows import PICTURE_COLUMNS
from groupwise.judges import Judge
from groupwise.rewards import LabelParser, RewardCase, RewardSet, describe_weights
from groupwise.run.stages import digest_models
from groupwise.run.steps import StepContext
from groupwise.run.task import Ask, Estimate, Part, Task
from groupwise.serving import Request
from groupwise_recipes.on_task.agreement import list_agreements
from groupwise_recipes.on_task.config import BOOTSTRAP, OnTaskConfig
from groupwise_recipes.on_task.estimate import estimate_run
from groupwise_recipes.on_task.ocr import check_ocr, describe_ocr
from groupwise_recipes.on_task.prompt import SCREEN_WORDS, make_label_rows, make_warmup_rows
from groupwise_recipes.on_task.rewards import (
    Judges,
    make_case,
    make_rewards,
    open_judge,
    open_judges,
)
from groupwise_recipes.on_task.screens import (
    ask_about_screen,
    describe_sources,
    prepare_screens,
    read_labelled_screens,
    read_sources,
    read_warmup,
    show_warmup,
)
from groupwise_recipes.on_task.screenshots import digest_screenshots
from groupwise_recipes.on_task.temporal import describe_flips
from groupwise_recipes.on_task.verified import VISUAL_VERIFIER, open_verifier, predict_verified
from groupwise_recipes.on_task.words import check_reader, describe_reader

if TYPE_CHECKING:
    from groupwise.evaluation.baselines import Features, Learn
    from groupwise.evaluation.metrics import Metric
    from groupwise.evaluation.predictions import Prediction
    from groupwise.evaluation.report.page import Section
    from groupwise.training.settings import RowsOfEpoch

_OWN = "groupwise_recipes.on_task"
_PARSER = "groupwise.rewards.labels groupwise.rewards.reward"
_VERIFIER = f"{_OWN}.ocr {_OWN}.verified {_OWN}.verifier {_OWN}.vocabulary {_OWN}.vocabularies"


class OnTask(Task[OnTaskConfig]):
    """Screens and tasks are asked about; a description comes before the label."""

    config_type = OnTaskConfig
    parts: ClassVar = {
        "data": Part("data answer prompt", f"{_OWN}.ocr {_OWN}.words"),
        "audit": Part("data.warmup_share"),
        "parser": Part("answer", _PARSER),
        "warmup": Part(
            "prompt sft.pairs_per_screen sft.written_tasks sft.labelled_share",
            f"{_OWN}.prompt",
        ),
        "rewards": Part(
            "answer rewards judge",
            f"groupwise.rewards {_OWN}.rewards groupwise.judges {_OWN}.prompts {_OWN}.prompt "
            f"{_VERIFIER}",
        ),
        "measures": Part("visual_verifier", f"{_VERIFIER} {_OWN}.temporal {_OWN}.agreement"),
    }
    slices: ClassVar = ("language", "difficulty")
    read: ClassVar = SCREEN_WORDS
    worded: ClassVar = ("task", "task_description", "task_en")
    baselines: ClassVar = (*Task.baselines, VISUAL_VERIFIER)
    has_screens: ClassVar = True

    def inputs(self, config: OnTaskConfig) -> Mapping[str, str]:
        """Return what the screens, the judge's model and what reads words are known by."""
        root, judge = config.data.root, config.judge
        models = {} if judge is None else {"judge.model": judge.model}
        if judge is not None:
            models["judge.tokenizer"] = judge.tokenizer
        screens = {} if root is None else {"data.root": digest_screenshots(root)}
        return {**screens, **_digest_reader(config), **digest_models(models)}

    def prepare(self, config: OnTaskConfig, folder: Path) -> None:
        """Split the screens and pair them with tasks."""
        prepare_screens(config, folder)

    def find_in_data(self, config: OnTaskConfig, prepared: Path) -> Sequence[Finding]:
        """Return where the screens of each split come from."""
        lines = describe_sources(read_sources(prepared))
        return report_places("info", "sources", "Screens come from:", lines)

    def show_warmup(self, config: OnTaskConfig, prepared: Path) -> Sequence[Example]:
        """Return the warm-up's screens, unless they are those of GRPO."""
        return show_warmup(prepared) if config.data.warmup_share else ()

    def parser(self, config: OnTaskConfig) -> LabelParser:
        """Return the labels and the description before them."""
        return config.answer

    def warmup(self, config: OnTaskConfig, folder: Path) -> "RowsOfEpoch":
        """Return new pairs in every epoch, each with its description."""
        return make_warmup_rows(read_warmup(folder), config)

    def begins_easy(self, config: OnTaskConfig, prepared: Path, split: str) -> bool:
        """Return whether there are rows of ``bootstrap``, which says how sure its judge is."""
        return BOOTSTRAP in read_sources(prepared)[split]

    def control(self, config: OnTaskConfig, examples: Sequence[Example], ask: Ask) -> "RowsOfEpoch":
        """Return the label after the policy's own description."""
        prefixes = [config.answer.parse(text).prefix for text in ask(examples)]
        return make_label_rows(examples, prefixes, config.answer)

    def judge(self, config: OnTaskConfig, folder: Path) -> Judges | None:
        """Return the larger model that says whether a screen fits a task, and the verifier."""
        return open_judges(config, folder)

    def judge_of_screens(self, config: OnTaskConfig, folder: Path) -> Judge | None:
        """Return the larger model alone."""
        return open_judge(config.judge, config.answer, folder) if config.judge else None

    def rewards(self, config: OnTaskConfig, judge: Judges | None = None) -> RewardSet:
        """Return the rewards."""
        return make_rewards(config, judge)

    def make_case(self, config: OnTaskConfig, folder: Path) -> RewardCase:
        """Return the rewards and the training pairs."""
        return make_case(config, folder)

    def weigh(self, config: OnTaskConfig) -> Mapping[str, float]:
        """Return the weights of the parts that are there."""
        weights: dict[str, Any] = config.rewards.model_dump()
        if config.judge is None:
            del weights["judge"]
        if not weights["visual_verifier"]:
            del weights["visual_verifier"]
        return weights

    def describe_weights(self, config: OnTaskConfig) -> str:
        """Return the weights that count, and the parts that are absent."""
        absent = set(config.rewards.model_dump()) - set(self.weigh(config))
        return describe_weights(config.rewards.model_dump(), absent=sorted(absent))

    def predict_baselines(
        self,
        config: OnTaskConfig,
        context: StepContext,
        train: Sequence[Example],
        test: Sequence[Example],
    ) -> "list[Prediction]":
        """Return the usual ones, and what the verifier alone says."""
        found = super().predict_baselines(config, context, train, test)
        if not config.visual_verifier.is_baseline:
            return found
        verifier = open_verifier(context.folder)
        return found + predict_verified(verifier, test, self.parser(config).labels)

    def joint_candidates(
        self, train: Sequence[Example], features: "Features", seed: int
    ) -> "Mapping[str, Learn]":
        """Return models of the activity on a screen and of a task's, and whether they agree."""
        return list_agreements(train, features, seed, concepts=("activity", "task_activity"))

    def describe(
        self,
        config: OnTaskConfig,
        context: StepContext,
        predictions: "Sequence[Prediction]",
        metrics: "Sequence[Metric]",
        test: Sequence[Example],
    ) -> "Sequence[Section]":
        """Return the flips within sessions, where rows have a time; each is kept."""
        return describe_flips(predictions, context.folder, self.policies(context))

    def picture_columns(self, config: OnTaskConfig) -> Sequence[str]:
        """Return the names that the screen's column may have."""
        return PICTURE_COLUMNS

    def read_labelled(
        self, config: OnTaskConfig, context: StepContext, path: Path, folder: Path
    ) -> tuple[list[Example], DropLog]:
        """Return the questions about labelled screens; those without a label are dropped."""
        return read_labelled_screens(config, path, folder)

    def make_question(self, config: OnTaskConfig, request: Request, folder: Path) -> Example:
        """Return the question about a screen and a task, the screen stored as for training."""
        return ask_about_screen(config, request, folder)

    def describe_tools(self, config: OnTaskConfig) -> Mapping[str, Any]:
        """Return what reads the words of the prompt, if it has them."""
        return {"words": describe_reader()} if config.data.screen_words else {}

    def check_tools(self, config: OnTaskConfig, run: Path) -> None:
        """Refuse to read the words of new screens otherwise than those of a run."""
        check_reader(config, run / self.data_stage)

    def describe_prompt(self, config: OnTaskConfig) -> Sequence[Message]:
        """Return the question behind a screenshot; a row does not have the words on it."""
        return [] if config.data.screen_words else [Message("user", config.prompt)]

    def estimate(self, config: OnTaskConfig) -> Estimate:
        """Return rows, tokens and sources."""
        return estimate_run(config)


def _digest_reader(config: OnTaskConfig) -> dict[str, str]:
    """Return the digest of what reads words, by each setting that asks for it."""
    asks = {
        "data.screen_words": config.data.screen_words is not None,
        "rewards.visual_verifier": config.rewards.visual_verifier > 0,
        "visual_verifier.is_baseline": config.visual_verifier.is_baseline,
    }
    if any(asks.values()):
        check_ocr()
    return {path: digest_json(describe_ocr()) for path, is_asked in asks.items() if is_asked}


TASK = OnTask()
