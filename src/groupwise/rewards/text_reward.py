"""What rewards share that compare an answer in words with reference answers."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from groupwise.core import Completion, Example, Score
from groupwise.rewards.parser import Parser
from groupwise.rewards.reward import RewardKind
from groupwise.rewards.text_answers import read_references
from groupwise.rewards.text_parser import TextParser


class TextReward(ABC):
    """A reward of an answer in words.

    What is no answer for the parser is invalid; an example without references cannot be scored.

    Args:
        parser: finds the answer; None: a TextParser.
        references: field with the list of right answers; without it the label is the only one.
    """

    kind: RewardKind = "truth"
    runs_beside_scoring = True

    def __init__(self, parser: Parser | None = None, *, references: str = "answers") -> None:
        self.parser = parser or TextParser()
        self.references = references

    def applies_to(self, example: Example) -> bool:
        """Return whether the example has references."""
        given: object = example.fields.get(self.references)
        return example.label is not None if given is None else given != []

    def __call__(self, example: Example, completion: Completion) -> Score:
        """Return the score.

        Raises:
            RewardError: if a reference answer is no text or has no words.
        """
        references = read_references(example, self.references)
        if not references:
            return Score(None, "no reference answer")
        answer = self.parser.parse(completion.text, example)
        if answer.label is None:
            return Score(0.0, answer.reason, invalid=True)
        return self._compare(answer.label, references)

    @abstractmethod
    def _compare(self, answer: str, references: Sequence[str]) -> Score:
        """Return the score of an answer against at least one reference answer."""
