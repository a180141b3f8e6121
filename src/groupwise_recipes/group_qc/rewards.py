"""What GRPO is rewarded by: the verdict, the two-line form and, if wanted, a consistent reason.

Every part reads the reply by its ``VerdictParser``. An example without a valid label has no score
(None) in any part, so it leaves the statistics instead of earning 0.
"""

import re
from abc import ABC, abstractmethod
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from groupwise.core import Completion, Config, Example, Score
from groupwise.rewards import Reward, RewardKind, RewardSet
from groupwise_recipes.group_qc.verdicts import Judgement, VerdictParser


class GroupRewards(Config):
    """The rewards and their weights, one weight per reward; only their proportion counts.

    Attributes:
        parts: names of rewards.
        weights: in the same order. With 1.0 and 0.2 a reply earns 0, 0.2, 1.0 or 1.2 of 1.2.
    """

    parts: tuple[Literal["label", "format", "consistency"], ...] = (
        "label",
        "format",
        "consistency",
    )
    weights: tuple[Annotated[float, Field(ge=0)], ...] = (1.0, 0.2, 0.0)

    @model_validator(mode="after")
    def _check_number(self) -> Self:
        if len(self.weights) != len(self.parts):
            raise ValueError(
                f"{len(self.parts)} rewards ({', '.join(self.parts)}) and {len(self.weights)} "
                "weights; give one weight per reward"
            )
        if len(set(self.parts)) < len(self.parts):
            raise ValueError(f"a reward appears twice in {', '.join(self.parts)}")
        if not any(self.weights):
            raise ValueError("all rewards have the weight 0")
        return self

    @property
    def by_name(self) -> dict[str, float]:
        """Weights by name of the reward."""
        return dict(zip(self.parts, self.weights, strict=True))


class JudgementReward(ABC):
    """Scores what a reply says; an example without a valid label has no score.

    Attributes:
        name, kind: as in ``groupwise.rewards.Reward``.
        parser: reads replies.
    """

    name: str
    kind: RewardKind

    def __init__(self, parser: VerdictParser) -> None:
        self.parser = parser

    def applies_to(self, example: Example) -> bool:
        """Return whether the example has a valid label."""
        return example.label in self.parser.labels

    def __call__(self, example: Example, completion: Completion) -> Score:
        """Return the score."""
        if not self.applies_to(example):
            return Score(None, "no valid label")
        return self._score(example, self.parser.judge(completion.text))

    @abstractmethod
    def _score(self, example: Example, found: Judgement) -> Score:
        """Return the score of a parsed reply."""


class VerdictMatch(JudgementReward):
    """1 if the first line of the stripped reply is exactly the true verdict, else 0.

    A reply without a verdict is invalid.
    """

    name = "label"
    kind = "truth"

    def _score(self, example: Example, found: Judgement) -> Score:
        if found.verdict is None:
            return Score(0.0, found.problem, invalid=True)
        if found.verdict == example.label:
            return Score(1.0, f"{found.verdict} is right")
        return Score(0.0, f"{found.verdict} is wrong, the label is {example.label}")


class TwoLineFormat(JudgementReward):
    """1 if the reply is a verdict line and a reason line and nothing else, else 0.

    Of the example only counts that it has a label.
    """

    name = "format"
    kind = "format"

    def _score(self, example: Example, found: Judgement) -> Score:
        return Score(float(found.is_well_formed), found.problem or "two lines")


class ReasonConsistency(JudgementReward):
    """1 if the reason names only photos that exist and does not contradict its verdict, else 0.

    A reason contradicts 通过 if it has a negative remark (``words.negative``), and 不通过 if it has
    none and says that all is fulfilled (``words.fulfilled``). Whether it is true is not looked at.
    Photos are counted by the example's ``stage_a_summaries``.
    """

    name = "consistency"
    kind = "format"

    def _score(self, example: Example, found: Judgement) -> Score:
        if not found.is_well_formed:
            return Score(0.0, found.problem)
        words, reason = self.parser.words, found.reason
        num_photos = len(example.fields.get("stage_a_summaries", ()))
        named = re.findall(rf"{re.escape(words.photo)}_(\d+)", reason)
        absent = [number for number in map(int, named) if not 1 <= number <= num_photos]
        if absent:
            return Score(0.0, f"{words.name_photo(absent[0])} is not there")
        is_negative = words.is_negative(reason)
        if found.verdict == words.pass_verdict and is_negative:
            return Score(0.0, f"{found.verdict} with a negative remark")
        is_fulfilled = not is_negative and re.search(words.fulfilled, reason)
        if found.verdict == words.fail_verdict and is_fulfilled:
            return Score(0.0, f"{found.verdict} though all is fulfilled")
        return Score(1.0, "consistent")


_REWARDS: dict[str, type[JudgementReward]] = {
    reward.name: reward for reward in (VerdictMatch, TwoLineFormat, ReasonConsistency)
}


def make_rewards(settings: GroupRewards, parser: VerdictParser) -> RewardSet:
    """Return the rewards with their weights as shares; a part of weight 0 is only logged."""
    parts: dict[str, tuple[Reward, float]] = {
        name: (_REWARDS[name](parser), weight) for name, weight in settings.by_name.items()
    }
    return RewardSet(parts)
