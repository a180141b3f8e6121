"""Reward: is the answer, normalised, one of the reference answers?

Range: 0 or 1. Source: exact match of SQuAD v1.1; the normalisation and its deviations are in
``text_answers``.
"""

from groupwise.core import Completion, Example, Score
from groupwise.rewards.reward import RewardKind
from groupwise.rewards.tags import TagContract
from groupwise.rewards.text_answers import normalize_text, read_sides


class ExactMatch:
    """1 if the answer equals a reference answer after normalisation, else 0.

    An answer without words is invalid; an example without references cannot be scored.

    Args:
        contract: where the answer stands; None: the whole completion.
        references: field with the list of right answers; without it the label is the only one.
    """

    name = "exact_match"
    kind: RewardKind = "truth"

    def __init__(self, contract: TagContract | None = None, *, references: str = "answers") -> None:
        self.contract = contract
        self.references = references

    def __call__(self, example: Example, completion: Completion) -> Score:
        """Return the score.

        Raises:
            RewardError: if a reference answer is no text or has no words.
        """
        sides = read_sides(example, completion, contract=self.contract, references=self.references)
        if isinstance(sides, Score):
            return sides
        answer, references = sides
        said = normalize_text(answer)
        if said in {normalize_text(reference) for reference in references}:
            return Score(1.0, f"{said!r} is a reference answer")
        return Score(0.0, f"{said!r} is no reference answer")
