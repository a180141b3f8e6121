"""What GRPO is rewarded by, and what those rewards are audited with.

The judge is a larger model that says whether a screen fits a task. It sees the screen and the task
and never the policy's answer, so no answer can talk to it.
"""

from dataclasses import replace
from pathlib import Path

from groupwise.core import Completion, Example, Score
from groupwise.data import read_examples
from groupwise.inference import Responder, open_responder
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

_PROMPTS = Path(__file__).parent / "prompts"
OPTION_TEXTS = {
    "en": ("the screen is on-task", "the screen is off-task"),
    "zh": ("在任务上", "不在任务上"),
}
"""What the judge reads for each label, whatever word the policy has for it."""


def make_rewards(config: OnTaskConfig, judge: LogitJudge | None = None) -> RewardSet:
    """Return the rewards with their weights; a part of weight 0 is only logged.

    Without a judge its weight goes to the other parts. A judge that contradicts a known label
    counts as the label, because its weight would outvote the label's.
    """
    parser, weights = config.answer, config.rewards
    overruled = weights.classification + weights.judge
    parts: dict[str, tuple[Reward, float]] = {
        "classification": (LabelMatch(parser), weights.classification),
        "format": (AnswerFormat(parser), weights.format),
        "human": (HumanOverride(LabelMatch(parser), field=HUMAN_LABEL), overruled),
    }
    if judge is not None:
        parts["judge"] = (make_judged(judge, parser), weights.judge)
    return RewardSet(parts, drop_contradicted=True)


def make_case(config: OnTaskConfig, prepared: Path) -> RewardCase:
    """Return the rewards and the training pairs; evaluation reads answers by the same parser.

    The audit asks no model: it seats stand-ins where the judge will be.
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

    def build(responder: Responder) -> RewardSet:
        return make_rewards(config, make_judge(once, config.answer, responder))

    options = OPTION_TEXTS[settings.language]
    return JudgeSeat(build, dict(zip(config.answer.labels, options, strict=True)))


def open_judge(settings: OnTaskJudgeSettings, parser: LabelParser, folder: Path) -> LogitJudge:
    """Load the model, or make ready to ask its server; replies are kept in ``folder``."""
    cache = ReplyCache(settings.cache or folder / "judge.sqlite", max_mib=settings.cache_mib)
    return make_judge(settings, parser, open_responder(settings), cache=cache)


def make_judge(
    settings: OnTaskJudgeSettings,
    parser: LabelParser,
    responder: Responder,
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
