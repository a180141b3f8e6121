"""What GRPO is rewarded by, and what those rewards are audited with."""

from dataclasses import replace
from pathlib import Path

from groupwise.core import Example
from groupwise.data import read_examples
from groupwise.rewards import AnswerFormat, LabelMatch, RewardCase, RewardSet, measure_labels
from groupwise_recipes.on_task.config import OnTaskConfig
from groupwise_recipes.on_task.prompt import write_target


def make_rewards(config: OnTaskConfig) -> RewardSet:
    """Return the rewards with their weights; a part of weight 0 is only logged."""
    return RewardSet(
        {
            "classification": (LabelMatch(config.answer), config.rewards.classification),
            "format": (AnswerFormat(config.answer), config.rewards.format),
        }
    )


def make_case(config: OnTaskConfig, prepared: Path) -> RewardCase:
    """Return the rewards and the training pairs; evaluation reads answers by the same contract."""

    def write_answer(example: Example, label: str) -> str:
        return write_target(replace(example, label=label), config.answer)

    return RewardCase(
        rewards=make_rewards(config),
        examples=read_examples(prepared / "train.jsonl"),
        write_answer=write_answer,
        measure=measure_labels(config.answer),
        labels=config.answer.labels,
    )
