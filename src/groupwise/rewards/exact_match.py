"""Reward: is the answer, normalised, one of the reference answers?

Range: 0 or 1. Source: exact match of SQuAD v1.1; the normalisation and its deviations are in
``text_answers``.
"""

from collections.abc import Sequence

from groupwise.core import Score
from groupwise.rewards.text_answers import normalize_text
from groupwise.rewards.text_reward import TextReward


class ExactMatch(TextReward):
    """1 if the answer equals a reference answer after normalisation, else 0.

    What is no answer for the parser is invalid; an example without references cannot be scored.

    Args:
        parser: finds the answer; None: a TextParser.
        references: field with the list of right answers; without it the label is the only one.
    """

    name = "exact_match"

    def _compare(self, answer: str, references: Sequence[str]) -> Score:
        said = normalize_text(answer)
        if said in {normalize_text(reference) for reference in references}:
            return Score(1.0, f"{said!r} is a reference answer")
        return Score(0.0, f"{said!r} is no reference answer")
