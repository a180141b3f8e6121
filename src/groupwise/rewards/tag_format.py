"""Reward: are the tags there, once, in order and with contents? It does not look at the answer."""

from groupwise.core import Completion, Example, Score
from groupwise.rewards.reward import RewardKind
from groupwise.rewards.tags import TagContract


class TagFormat:
    """1 if the completion follows the tag contract, else 0 and invalid with the reason."""

    name = "tag_format"
    kind: RewardKind = "format"
    runs_beside_scoring = True

    def __init__(self, contract: TagContract) -> None:
        self.contract = contract

    def __call__(self, example: Example, completion: Completion) -> Score:
        """Return the score; the example plays no part in it."""
        tagged = self.contract.parse(completion.text)
        if tagged.reason:
            return Score(0.0, tagged.reason, invalid=True)
        return Score(1.0, f"all of {', '.join(self.contract.tags)} are there")
