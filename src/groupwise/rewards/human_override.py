"""Reward: is the answer what a person said is right? Where nobody did, it has no value.

In a RewardSet it overrides: where it has a value, truths and judgements are dropped.
"""

from dataclasses import replace

from groupwise.core import Completion, Example, RewardError, Score
from groupwise.rewards.reward import Reward, RewardKind, applies_to, explain_unusable


class HumanOverride:
    """The value of another reward, with a person's label in place of the example's.

    Args:
        reward: compares an answer with a label, such as LabelMatch.
        field: field with the person's label; None or absent where nobody corrected the example.
    """

    name = "human_override"
    kind: RewardKind = "human"

    def __init__(self, reward: Reward, *, field: str = "human_label") -> None:
        self.reward = reward
        self.field = field

    def applies_to(self, example: Example) -> bool:
        """Return whether a person corrected the example and the reward applies to that.

        Raises:
            RewardError: if the person's label is no text.
        """
        corrected = self._correct(example)
        return corrected is not None and applies_to(self.reward, corrected)

    def __call__(self, example: Example, completion: Completion) -> Score:
        """Return the score.

        Raises:
            RewardError: if the person's label is no text, or the reward cannot use it.
        """
        corrected = self._correct(example)
        if corrected is None:
            return Score(None, "nobody corrected this")
        return self.reward(corrected, completion)

    def explain_unusable(self, example: Example) -> str | None:
        """Return why the reward cannot use the person's label; None if it can or there is none.

        Raises:
            RewardError: if the person's label is no text.
        """
        corrected = self._correct(example)
        return None if corrected is None else explain_unusable(self.reward, corrected)

    def _correct(self, example: Example) -> Example | None:
        """Return the example with the person's label; None if nobody corrected it."""
        label: object = example.fields.get(self.field)
        if label is None:
            return None
        if not isinstance(label, str):
            raise RewardError(
                f"example {example.id} has a person's label that is no text", got=repr(label)
            )
        return replace(example, label=label)
