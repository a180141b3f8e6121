"""Measures: what each is called in English and Chinese, and whether more of it is better.

Whatever is said, drawn or exported about a number takes its direction from here. A recipe writes
the measures that it adds into ``Conditions``.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True, slots=True)
class Measure:
    """One measure.

    Attributes:
        name: as in ``POLICY/NAME``.
        title: for readers, in English.
        title_zh: the same in Chinese.
        is_higher_better: whether more of it is better.
    """

    name: str
    title: str
    title_zh: str
    is_higher_better: bool = True

    @property
    def sign(self) -> Literal[1, -1]:
        """What a difference is multiplied by to be a gain."""
        return 1 if self.is_higher_better else -1

    @property
    def is_correctness(self) -> bool:
        """Whether an item counts 1 if it was answered right and 0 if not."""
        return self.name.startswith(_RIGHT_OR_WRONG)


_RIGHT_OR_WRONG = ("accuracy", "recall:", "pair_accuracy")
ACCURACY = Measure("accuracy", "Accuracy", "准确率")
REWARD = Measure("reward", "Reward", "奖励")
"""The weighted reward, a measure where answers have no reference."""
_KNOWN = {
    one.name: one
    for one in (
        ACCURACY,
        Measure("balanced_accuracy", "Balanced accuracy", "平衡准确率"),
        Measure("pair_accuracy", "Pair accuracy", "成对准确率"),
        Measure("invalid_rate", "Invalid answers", "无效回答率", is_higher_better=False),
        Measure("brier", "Brier score", "Brier 分数", is_higher_better=False),
        Measure("ece", "Calibration error", "校准误差", is_higher_better=False),
        Measure("latency_p50_s", "Median latency", "延迟中位数", is_higher_better=False),
        Measure("latency_p95_s", "95 % latency", "95 % 延迟", is_higher_better=False),
    )
}
_FAMILIES = {
    "accuracy[": ("Accuracy where {}", "{} 的准确率"),
    "pair_accuracy[": ("Pair accuracy where {}", "{} 的成对准确率"),
    "invalid_rate[": ("Invalid answers where {}", "{} 的无效回答率"),
    "precision:": ("Precision of {}", "{} 的精确率"),
    "recall:": ("Recall of {}", "{} 的召回率"),
    "f1:": ("F1 of {}", "{} 的 F1"),
    "pass@": ("pass@{}", "pass@{}"),
    "mean@": ("mean@{}", "mean@{}"),
}


METRIC_VERSIONS: Mapping[str, int] = {
    "accuracy": 2,
    "balanced_accuracy": 4,
    "brier": 4,
    "comparison": 4,
    "ece": 3,
    "f1": 4,
    "invalid_rate": 2,
    "latency": 1,
    "mean@k": 3,
    "pair_accuracy": 3,
    "pass@k": 3,
    "precision": 2,
    "recall": 2,
    "scores": 4,
    "slices": 2,
}
"""Version of each family of metrics; it rises with any change of a value or an interval."""


def is_builtin(name: str) -> bool:
    """Whether a measure of Groupwise itself has this name."""
    return name in _KNOWN or name.startswith(tuple(_FAMILIES))


def choose_headline(names: Collection[str], own: Sequence[Measure]) -> Measure:
    """Return what heads a report: accuracy where it was measured, else the first own measure.

    Args:
        names: of the measures that there are.
        own: what the recipe defines, the most important first.
    """
    if ACCURACY.name in names:
        return ACCURACY
    return next((one for one in own if one.name in names), ACCURACY)


def find_measure(name: str, own: Iterable[Measure] = ()) -> Measure | None:
    """Return a measure by its name; None where nobody says which direction is better.

    Args:
        name: such as ``accuracy``, ``recall:LABEL``, or a recipe's own score, whole or as
            SCORE[FIELD=VALUE].
        own: what the recipe defines.
    """
    if name in _KNOWN:
        return _KNOWN[name]
    for family, (title, title_zh) in _FAMILIES.items():
        if name.startswith(family):
            part = name.removeprefix(family).removesuffix("]" if family.endswith("[") else "")
            is_higher_better = not family.startswith("invalid")
            return Measure(name, title.format(part), title_zh.format(part), is_higher_better)
    found = {one.name: one for one in own}
    whole, _, part = name.removesuffix("]").partition("[")
    if name in found or whole not in found or not part:
        return found.get(name)
    one = found[whole]
    titles = {"title": f"{one.title} where {part}", "title_zh": f"{part} 的{one.title_zh}"}
    return replace(one, name=name, **titles)
