"""Rewards of the parsed answer: is it the example's label, or a person's, and is it one at all?"""

from dataclasses import replace

from groupwise.core import Completion, Example, RewardError, Score
from groupwise.rewards.reward import (
    AnswerReward,
    Parsed,
    Parser,
    Reward,
    RewardKind,
    applies_to,
    explain_unusable,
)


class LabelMatch(AnswerReward):
    """1 if the parsed label equals the example's label, else 0.

    It is for answers that have one spelling: labels, letters of options, JSON. An invalid
    completion earns 0 and is counted as invalid; an example without a label cannot be scored, and
    a label that no answer can give raises a RewardError.
    """

    name = "label_match"
    kind: RewardKind = "truth"
    _absent = "no label"

    def __init__(self, parser: Parser) -> None:
        self.parser = parser
        self._labels: dict[tuple[str, str], str] = {}

    def applies_to(self, example: Example) -> bool:
        """Return whether the example has a label."""
        return example.label is not None

    def _explain_unscored(self, example: Example) -> str | None:
        if example.label is not None:
            self._read_label(example, example.label)
        return super()._explain_unscored(example)

    def _score(self, example: Example, label: str, answer: Parsed) -> Score:
        right = self._read_label(example, str(example.label))
        if label == right:
            return Score(1.0, f"{label} is right")
        return Score(0.0, f"{label} is wrong, the label is {right}")

    def _read_label(self, example: Example, label: str) -> str:
        """Return the label in the spelling of answers; it is read once."""
        known = self._labels.get((example.id, label))
        if known is not None:
            return known
        try:
            written = self.parser.write(label)
        except RewardError as error:
            problem = str(error)
        else:
            read = self.parser.parse(written, example)
            if read.label is not None:
                self._labels[example.id, label] = read.label
                return read.label
            problem = read.reason
        labels = ", ".join(self.parser.labels)
        raise RewardError(
            f"example {example.id} has a label that no answer can give",
            got=repr(label),
            expected=f"one of {labels}" if labels else f"an answer ({problem})",
        )


class AnswerFormat(AnswerReward):
    """1 if the completion is an answer for the parser, else 0 and invalid with the reason.

    It does not look at whether the answer is right; the label of the example plays no part in it.
    """

    name = "answer_format"
    kind: RewardKind = "format"

    def __init__(self, parser: Parser) -> None:
        self.parser = parser

    def _score(self, example: Example, label: str, answer: Parsed) -> Score:
        return Score(1.0, f"an answer: {label}")


class HumanOverride:
    """The value of another reward, with a person's label in place of the example's.

    In a RewardSet it overrides: where it has a value, truths and judgements are dropped.

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
