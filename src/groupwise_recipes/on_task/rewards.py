"""What GRPO is rewarded by, and what those rewards are audited with.

The judge is a larger model that says whether a screen fits a task. It sees the screen and the task
and never the policy's answer, so no answer can talk to it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from groupwise.core import Completion, Example, Score
from groupwise.data.examples import read_examples
from groupwise.inference.model import Model
from groupwise.inference.opening import open_model
from groupwise.judges import LogitJudge, Question, ReplyCache, Verdict, load_prompt
from groupwise.rewards import (
    ASKED_ONCE,
    AnswerFormat,
    HumanOverride,
    Judged,
    JudgeSeat,
    LabelMatch,
    LabelParser,
    Reward,
    RewardCase,
    RewardSet,
)
from groupwise_recipes.on_task.config import OnTaskConfig, OnTaskJudgeSettings
from groupwise_recipes.on_task.prompt import HUMAN_LABEL, write_target
from groupwise_recipes.on_task.verified import Verified, open_verifier
from groupwise_recipes.on_task.verifier import VisualVerifier

_PROMPTS = Path(__file__).parent / "prompts"
OPTION_TEXTS = {
    "en": ("the screen is on-task", "the screen is off-task"),
    "zh": ("在任务上", "不在任务上"),
}
"""What the judge reads for each label, whatever word the policy has for it."""


@dataclass(frozen=True, slots=True)
class Judges:
    """What judges answers beside the labels; None where there is none."""

    judge: LogitJudge | None = None
    verifier: VisualVerifier | None = None

    def report(self) -> Mapping[str, Any]:
        """Return what the judge counted, and the verifier under its name."""
        found: dict[str, Any] = {} if self.judge is None else {**self.judge.report()}
        return (
            found if self.verifier is None else {**found, "visual_verifier": self.verifier.count()}
        )


def open_judges(config: OnTaskConfig, folder: Path) -> Judges | None:
    """Make ready what judges; what was said and read is kept in ``folder``. None: nothing does."""
    judge = open_judge(config.judge, config.answer, folder) if config.judge else None
    pays = config.rewards.visual_verifier > 0
    verifier = open_verifier(folder) if pays else None
    return Judges(judge, verifier) if judge or verifier else None


def make_rewards(config: OnTaskConfig, judges: Judges | None = None) -> RewardSet:
    """Return the rewards with their weights; a part of weight 0 is only logged.

    Without a judge its weight goes to the other parts, and so does the verifier's. Where one of
    them contradicts a known label it counts as the label, because it could outvote the label.
    """
    parser, weights = config.answer, config.rewards
    overruled = weights.classification + weights.judge
    parts: dict[str, tuple[Reward, float]] = {
        "classification": (LabelMatch(parser), weights.classification),
        "format": (AnswerFormat(parser), weights.format),
        "human": (HumanOverride(LabelMatch(parser), field=HUMAN_LABEL), overruled),
    }
    if judges and judges.judge:
        parts["judge"] = (make_judged(judges.judge, parser), weights.judge)
    if judges and judges.verifier:
        parts["visual_verifier"] = (Verified(judges.verifier, parser), weights.visual_verifier)
    return RewardSet(parts, drop_contradicted=True)


def make_case(config: OnTaskConfig, prepared: Path) -> RewardCase:
    """Return the rewards and the training pairs; evaluation reads answers by the same parser.

    The audit asks no model and reads no screen: it seats stand-ins where the judge will be.
    """

    def write_answer(example: Example, label: str) -> str:
        return write_target(replace(example, label=label), config.answer)

    return RewardCase(
        rewards=make_rewards(config),
        examples=read_examples(prepared / "train.jsonl"),
        parser=config.answer,
        write_answer=write_answer,
        seat=_make_seat(config),
    )


def _make_seat(config: OnTaskConfig) -> JudgeSeat | None:
    settings = config.judge
    if settings is None:
        return None

    once = settings.model_copy(update={"settings": ASKED_ONCE})

    def build(responder: Model) -> RewardSet:
        return make_rewards(config, Judges(make_judge(once, config.answer, responder)))

    options = OPTION_TEXTS[settings.language]
    return JudgeSeat(build, dict(zip(config.answer.labels, options, strict=True)))


def open_judge(settings: OnTaskJudgeSettings, parser: LabelParser, folder: Path) -> LogitJudge:
    """Load the model, or make ready to ask its server; replies are kept in ``folder``."""
    cache = ReplyCache(settings.cache or folder / "judge.sqlite", max_mib=256)
    return make_judge(settings, parser, open_model(settings), cache=cache)


def make_judge(
    settings: OnTaskJudgeSettings,
    parser: LabelParser,
    responder: Model,
    *,
    cache: ReplyCache | None = None,
) -> LogitJudge:
    """Return the judge with ``responder`` behind it; it lists the labels in both orders."""
    return LogitJudge(
        responder,
        load_prompt(_PROMPTS / f"judge.{settings.language}.txt"),
        labels=parser.labels,
        option_texts=OPTION_TEXTS[settings.language],
        name="on-task judge",
        settings=settings.settings,
        cache=cache,
    )


def make_judged(judge: LogitJudge, parser: LabelParser) -> Judged:
    """Return the reward: the judge's probability of the label that the policy gave."""

    def ask(example: Example, completion: Completion) -> Question | Score:
        answer = parser.parse(completion.text)
        if answer.label is None:
            return Score(0.0, answer.reason, invalid=True)
        return Question({"task": str(example.fields["task"])}, example.pictures)

    def pay(verdict: Verdict, _: Example, completion: Completion) -> float:
        label = parser.parse(completion.text).label
        assert label is not None
        return verdict.probabilities[label]

    return Judged(judge, ask=ask, pay=pay)
