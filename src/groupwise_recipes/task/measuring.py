"""What is measured of answers by functions: the user's measures, or else the rewards themselves."""

from collections.abc import Mapping, Sequence

from groupwise.core import Completion, Example
from groupwise.evaluation.predictions import REWARD, Measure
from groupwise.rewards import Fluency, FunctionReward
from groupwise_recipes.task.config import FLUENT, MeasurePart, TaskConfig, show_name
from groupwise_recipes.task.judging import Judges, list_judged
from groupwise_recipes.task.rewards import make_rewards

_BUILT_IN_ZH = {"correct": "正确", "format": "格式", "token_f1": "词元 F1", "fluency": "流畅度"}


def list_measures(config: TaskConfig) -> tuple[Measure, ...]:
    """Return the user's measures and, where rows have no reference, what the rewards pay."""
    own = [part.define(show_name(name)) for name, part in config.measures.items()]
    if not pays_measurably(config):
        return tuple(own)
    paid = [show_name(name) for name in config.rewards if name not in config.measures]
    if len(config.rewards) == 1:
        paid = []  # the only reward is the whole one
    parts = {name: MeasurePart(title_zh=_BUILT_IN_ZH.get(name)) for name in paid}
    return (*own, REWARD, *(part.define(name) for name, part in parts.items()))


def pays_measurably(config: TaskConfig) -> bool:
    """Return whether the reward is a measure: without a reference, and where no judge is asked."""
    return not config.has_reference and not list_judged(config)


def score_answers(
    config: TaskConfig,
    examples: Sequence[Example],
    answers: Sequence[Completion],
    *,
    fluency: Fluency | None = None,
) -> list[Mapping[str, float]]:
    """Return the values of each answer by the names of ``list_measures``."""
    columns: dict[str, list[float | None]] = {}
    if pays_measurably(config):
        judges = Judges()
        judges.fluency = fluency
        scores = make_rewards(config, judges).score_batch(examples, answers)
        columns[REWARD.name] = [score.value for score in scores]
        for name in map(show_name, config.rewards):
            columns[name] = [score.breakdown[name] for score in scores]
    for name, part in config.measures.items():
        if ":" in name and show_name(name) not in columns:
            measure = FunctionReward(
                name,
                kind="other",
                messages=part.messages,
                values=part.values,
                parser=config.answer,
            )
            columns[show_name(name)] = [
                score.value for score in measure.score_batch(examples, answers)
            ]
    if FLUENT in config.measures and fluency is not None:
        read = [score.value for score in fluency.score_batch(examples, answers)]
        columns[FLUENT] = [None if value is None else float(value == 1.0) for value in read]
    for name, part in config.measures.items():
        if part.all_of:
            parts = zip(*(columns[one] for one in part.all_of), strict=True)
            columns[name] = [_find_lowest(values) for values in parts]
    rows = zip(*columns.values(), strict=True) if columns else [()] * len(examples)
    return [
        {name: value for name, value in zip(columns, row, strict=True) if value is not None}
        for row in rows
    ]


def _find_lowest(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return min(known) if len(known) == len(values) else None
