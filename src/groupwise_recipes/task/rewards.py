"""What GRPO is rewarded by: built-in rewards by name, and functions of the user's own."""

from dataclasses import replace
from pathlib import Path

from groupwise.core import Example
from groupwise.data import read_examples
from groupwise.rewards import AnswerFormat, Reward, RewardCase, RewardSet, TokenF1
from groupwise_recipes.task.config import RewardPart, TaskConfig
from groupwise_recipes.task.functions import FunctionReward
from groupwise_recipes.task.rows import read_targets


def make_rewards(config: TaskConfig) -> RewardSet:
    """Return the rewards with their weights."""
    return RewardSet(
        {
            show_name(name): (_make_reward(name, part, config), part.weight)
            for name, part in config.rewards.items()
        }
    )


def make_case(config: TaskConfig, prepared: Path) -> RewardCase:
    """Return the rewards and the training prompts; evaluation reads answers by the same parser.

    The reference answer of a row is its target where it has one: a reward for the way to the
    answer may ask for more than the answer alone.
    """
    examples = read_examples(prepared / "train.jsonl")
    targets, labels = read_targets(prepared), {e.id: str(e.label) for e in examples}

    def write_answer(example: Example, label: str) -> str:
        before, _, behind = targets.get(example.id, "").rpartition(labels[example.id])
        text = f"{before}{label}{behind}"
        gives_label = before and config.answer.measure(replace(example, label=label), text) == 1.0
        return text if gives_label else config.answer.write(label)

    return RewardCase(
        rewards=make_rewards(config),
        examples=examples,
        parser=config.answer,
        write_answer=write_answer,
    )


def show_name(name: str) -> str:
    """Return the name of a reward in reports: of a function its own."""
    return name.rpartition(":")[2]


def _make_reward(name: str, part: RewardPart, config: TaskConfig) -> Reward:
    if ":" in name:
        return FunctionReward(name, kind=part.kind, messages=part.messages, values=part.values)
    if name == "format":
        return AnswerFormat(config.answer)
    return TokenF1(config.answer) if name == "token_f1" else config.answer.make_reward()
