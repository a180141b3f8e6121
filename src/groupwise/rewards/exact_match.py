"""Reward: is the answer, normalised, one of the reference answers?

Range: 0 or 1. Source: exact match of SQuAD v1.1; the normalisation and its deviations are in
``text_answers``.
"""

from groupwise.core import Completion, Example, Score
from groupwise.rewards.reward import RewardKind
from groupwise.rewards.tags import TagContract, read_answer
from groupwise.rewards.text_answers import normalize_text, read_references


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
        references = read_references(example, self.references)
        if not references:
            return Score(None, "no reference answer")
        answer, problem = read_answer(completion.text, self.contract)
        if answer is None:
            return Score(0.0, problem, invalid=True)
        said = normalize_text(answer)
        if not said:
            return Score(0.0, "the answer has no words", invalid=True)
        if said in {normalize_text(reference) for reference in references}:
            return Score(1.0, f"{said!r} is a reference answer")
        return Score(0.0, f"{said!r} is no reference answer")
