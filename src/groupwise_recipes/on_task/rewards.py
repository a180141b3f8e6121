"""What GRPO is rewarded by, and what those rewards are audited with."""

from dataclasses import replace
from pathlib import Path

from groupwise.core import Example
from groupwise.data import read_examples
from groupwise.inference import Responder
from groupwise.judges import LogitJudge
from groupwise.rewards import (
    ASKED_ONCE,
    AnswerFormat,
    JudgeSeat,
    LabelMatch,
    Reward,
    RewardCase,
    RewardSet,
)
from groupwise_recipes.on_task.config import OnTaskConfig
from groupwise_recipes.on_task.judge import OPTION_TEXTS, make_judge, make_judged
from groupwise_recipes.on_task.prompt import write_target


def make_rewards(config: OnTaskConfig, judge: LogitJudge | None = None) -> RewardSet:
    """Return the rewards with their weights; a part of weight 0 is only logged.

    Without a judge its weight goes to the other parts. A judge that contradicts a known label
    counts as the label, because its weight would outvote the label's.
    """
    parser, weights = config.answer, config.rewards
    parts: dict[str, tuple[Reward, float]] = {
        "classification": (LabelMatch(parser), weights.classification),
        "format": (AnswerFormat(parser), weights.format),
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
