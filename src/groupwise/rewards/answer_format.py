"""Reward: is the completion an answer at all? It does not look at whether it is right."""

from groupwise.core import Completion, Example, Score
from groupwise.rewards.parser import Parser
from groupwise.rewards.reward import RewardKind


class AnswerFormat:
    """1 if the completion is an answer for the parser, else 0 and invalid with the reason."""

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
