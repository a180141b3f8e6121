"""What is measured of answers by functions: the user's measures, or else the rewards themselves."""

from collections.abc import Mapping, Sequence

from groupwise.core import Completion, Example
from groupwise.evaluation import REWARD, Measure
from groupwise.rewards import FunctionReward
from groupwise_recipes.task.config import MeasurePart, TaskConfig, show_name
from groupwise_recipes.task.judging import list_judged
from groupwise_recipes.task.rewards import make_rewards


def list_measures(config: TaskConfig) -> tuple[Measure, ...]:
    """Return the user's measures and, where rows have no reference, what the rewards pay."""
    own = [part.define(show_name(name)) for name, part in config.measures.items()]
    if not pays_measurably(config):
        return tuple(own)
    paid = [show_name(name) for name in config.rewards if name not in config.measures]
    if len(config.rewards) == 1:
        paid = []  # the only reward is the whole one
    return (*own, REWARD, *(MeasurePart().define(name) for name in paid))


def pays_measurably(config: TaskConfig) -> bool:
    """Return whether the reward is a measure: without a reference, and where no judge is asked."""
    return not config.has_reference and not list_judged(config)


def score_answers(
    config: TaskConfig, examples: Sequence[Example], answers: Sequence[Completion]
) -> list[Mapping[str, float]]:
    """Return the values of each answer by the names of ``list_measures``.

    Raises:
        RewardError: if a function raises or returns something else than a number in [0, 1].
    """
    columns: dict[str, list[float | None]] = {}
    if pays_measurably(config):
        scores = make_rewards(config).score_batch(examples, answers)
        columns[REWARD.name] = [score.value for score in scores]
        for name in map(show_name, config.rewards):
            columns[name] = [score.breakdown[name] for score in scores]
    for name, part in config.measures.items():
        if show_name(name) not in columns:
            measure = FunctionReward(name, kind="other", messages=part.messages, values=part.values)
            columns[show_name(name)] = [
                score.value for score in measure.score_batch(examples, answers)
            ]
    rows = zip(*columns.values(), strict=True) if columns else [()] * len(examples)
    return [
        {name: value for name, value in zip(columns, row, strict=True) if value is not None}
        for row in rows
    ]
