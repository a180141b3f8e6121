"""What GRPO is rewarded by: built-in rewards by name, functions of the user's own, and judges."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from groupwise.core import Example
from groupwise.rewards import (
    AnswerFormat,
    Fluency,
    FunctionReward,
    Lowest,
    Reward,
    RewardCase,
    RewardSet,
    TokenF1,
)
from groupwise_recipes.task.config import JudgePart, RewardPart, TaskConfig, show_name
from groupwise_recipes.task.judging import Judges, make_judge, make_judged


def make_rewards(config: TaskConfig, judges: Judges | None = None) -> RewardSet:
    """Return the rewards with their weights; what is not open can only be looked at."""

    def make(name: str, part: RewardPart | JudgePart) -> Reward:
        if isinstance(part, JudgePart):
            return make_judged(part, (judges or {}).get(name) or make_judge(part), config)
        if name == "fluency":
            return Fluency() if judges is None or judges.fluency is None else judges.fluency
        return _make_reward(name, part, config)

    single = {
        show_name(name): make(name, part)
        for name, part in config.rewards.items()
        if isinstance(part, JudgePart) or not part.all_of
    }
    combined = {
        name: Lowest(name, [single[one] for one in part.all_of], kind=part.kind)
        for name, part in config.rewards.items()
        if isinstance(part, RewardPart) and part.all_of
    }
    made = {**single, **combined}
    weights = {show_name(name): part.weight for name, part in config.rewards.items()}
    return RewardSet({name: (made[name], weight) for name, weight in weights.items()})


def make_case(
    config: TaskConfig, examples: Sequence[Example], targets: Mapping[str, str]
) -> RewardCase:
    """Return the rewards and the training prompts; evaluation reads answers by the same parser.

    The reference answer of a row is its target where it has one: a reward for the way to the
    answer may ask for more than the answer alone.
    """
    labels = {e.id: str(e.label) for e in examples}

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
        max_new_tokens=config.grpo.max_new_tokens,
        uncounted=["fluency"] if "fluency" in config.rewards else [],
    )


def _make_reward(name: str, part: RewardPart, config: TaskConfig) -> Reward:
    if ":" in name:
        return FunctionReward(
            name,
            kind=part.kind,
            messages=part.messages,
            values=part.values,
            parser=config.answer,
        )
    if name == "format":
        return AnswerFormat(config.answer)
    return TokenF1(config.answer) if name == "token_f1" else config.answer.make_reward()
