"""What GRPO is rewarded by: the verdict, the two-line form and, if wanted, a consistent reason.

Every part reads the reply by its ``VerdictParser``. An example without a valid label has no score
(None) in any part, so it leaves the statistics instead of earning 0.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from pydantic import Field, model_validator

from groupwise.core import Completion, Config, Example, Score
from groupwise.rewards import RewardKind, RewardSet
from groupwise_recipes.group_qc.verdicts import Judgement, VerdictParser


class GroupRewards(Config):
    """Weights of the rewards; only their proportion counts.

    With 1.0 and 0.2 a reply earns 0, 0.2, 1.0 or 1.2 of 1.2; a part of weight 0 is only logged.

    Attributes:
        label: of the right verdict.
        format: of two lines in the right form.
        consistency: of a reason that fits its verdict.
    """

    label: float = Field(default=1.0, ge=0)
    format: float = Field(default=0.2, ge=0)
    consistency: float = Field(default=0.0, ge=0)

    @model_validator(mode="after")
    def _check_weights(self) -> Self:
        if not any(self.model_dump().values()):
            raise ValueError("all rewards have the weight 0")
        return self


@dataclass(frozen=True, slots=True)
class JudgementReward:
    """Scores what a reply says; an example without a valid label has no score.

    Attributes:
        name, kind: as in ``groupwise.rewards.Reward``.
        score: of an example's parsed reply.
        parser: reads replies.
    """

    name: str
    kind: RewardKind
    score: Callable[[Example, Judgement, VerdictParser], Score]
    parser: VerdictParser

    def applies_to(self, example: Example) -> bool:
        """Return whether the example has a valid label."""
        return example.label in self.parser.labels

    def __call__(self, example: Example, completion: Completion) -> Score:
        """Return the score."""
        if not self.applies_to(example):
            return Score(None, "no valid label")
        return self.score(example, self.parser.judge(completion.text), self.parser)


def make_rewards(weights: GroupRewards, parser: VerdictParser) -> RewardSet:
    """Return the rewards with their weights as shares."""
    parts = (
        (JudgementReward("label", "truth", score_verdict, parser), weights.label),
        (JudgementReward("format", "format", score_form, parser), weights.format),
        (JudgementReward("consistency", "format", score_reason, parser), weights.consistency),
    )
    return RewardSet({reward.name: (reward, weight) for reward, weight in parts})


def score_verdict(example: Example, found: Judgement, _: VerdictParser) -> Score:
    """Return 1 if the first line of the stripped reply is exactly the true verdict, else 0.

    A reply without a verdict is invalid.
    """
    if found.verdict is None:
        return Score(0.0, found.problem, invalid=True)
    if found.verdict == example.label:
        return Score(1.0, f"{found.verdict} is right")
    return Score(0.0, f"{found.verdict} is wrong, the label is {example.label}")


def score_form(_: Example, found: Judgement, parser: VerdictParser) -> Score:
    """Return 1 if the reply is a verdict line and a reason line and nothing else, else 0."""
    del parser
    return Score(float(found.is_well_formed), found.problem or "two lines")


def score_reason(example: Example, found: Judgement, parser: VerdictParser) -> Score:
    """Return 1 if the reason names only photos that exist and does not contradict its verdict.

    A reason contradicts 通过 if it has a negative remark (``words.negative``), and 不通过 if it has
    none and says that all is fulfilled (``words.fulfilled``). Whether it is true is not looked at.
    Photos are counted by the example's ``stage_a_summaries``.
    """
    if not found.is_well_formed:
        return Score(0.0, found.problem)
    words, reason = parser.words, found.reason
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
