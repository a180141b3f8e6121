"""Reward: is the completion an answer at all? It does not look at whether it is right."""

from groupwise.core import Completion, Example, Score
from groupwise.rewards.answers import AnswerContract
from groupwise.rewards.reward import RewardKind


class AnswerFormat:
    """1 if the completion follows the answer contract, else 0 and invalid with the reason."""

    name = "answer_format"
    kind: RewardKind = "format"
    runs_beside_scoring = True

    def __init__(self, contract: AnswerContract) -> None:
        self.contract = contract

    def __call__(self, example: Example, completion: Completion) -> Score:
        """Return the score; the example plays no part in it."""
        answer = self.contract.parse(completion.text)
        if answer.label is None:
            return Score(0.0, answer.reason, invalid=True)
        return Score(1.0, f"an answer with the label {answer.label}")
