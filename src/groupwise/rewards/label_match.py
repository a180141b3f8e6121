"""Rewards of the parsed answer alone: is it the example's label, and is it an answer at all?"""

from groupwise.core import Completion, Example, RewardError, Score
from groupwise.rewards.parser import Parser
from groupwise.rewards.reward import RewardKind


class LabelMatch:
    """1 if the parsed label equals the example's label, else 0.

    It is for answers that have one spelling: labels, letters of options, JSON. An invalid
    completion earns 0 and is counted as invalid; an example without a label cannot be scored.
    """

    name = "label_match"
    kind: RewardKind = "truth"
    runs_beside_scoring = True

    def __init__(self, parser: Parser) -> None:
        self.parser = parser

    def applies_to(self, example: Example) -> bool:
        """Return whether the example has a label."""
        return example.label is not None

    def __call__(self, example: Example, completion: Completion) -> Score:
        """Return the score.

        Raises:
            RewardError: if no answer can give the example's label.
        """
        if example.label is None:
            return Score(None, "no label")
        right = self._read_label(example, example.label)
        answer = self.parser.parse(completion.text, example)
        if answer.label is None:
            return Score(0.0, answer.reason, invalid=True)
        if answer.label == right:
            return Score(1.0, f"{answer.label} is right")
        return Score(0.0, f"{answer.label} is wrong, the label is {right}")

    def _read_label(self, example: Example, label: str) -> str:
        """Return the label in the spelling of answers."""
        try:
            written = self.parser.write(label)
        except RewardError as error:
            problem = str(error)
        else:
            found = self.parser.parse(written, example)
            if found.label is not None:
                return found.label
            problem = found.reason
        labels = ", ".join(self.parser.labels)
        raise RewardError(
            f"example {example.id} has a label that no answer can give",
            got=repr(label),
            expected=f"one of {labels}" if labels else f"an answer ({problem})",
        )


class AnswerFormat:
    """1 if the completion is an answer for the parser, else 0 and invalid with the reason.

    It does not look at whether the answer is right.
    """

    name = "answer_format"
    kind: RewardKind = "format"
    runs_beside_scoring = True

    def __init__(self, parser: Parser) -> None:
        self.parser = parser

    def __call__(self, example: Example, completion: Completion) -> Score:
        """Return the score; the label of the example plays no part in it."""
        answer = self.parser.parse(completion.text, example)
        if answer.label is None:
            return Score(0.0, answer.reason, invalid=True)
        return Score(1.0, f"an answer: {answer.label}")
