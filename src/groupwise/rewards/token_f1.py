"""Reward: how many tokens do the answer and a reference answer share?

Range: [0, 1]. Source: F1 of SQuAD v1.1 over bags of tokens, the best over all references; the
rule of HotpotQA (Yang et al. 2018, hotpot_evaluate_v1.py): where one side is ``yes``, ``no`` or
``noanswer`` and the other is not the same, F1 is 0. Deviations: the rule also holds for Chinese
yes and no; Chinese text is compared as a bag of characters (as DRCD does), where CMRC 2018 takes
the longest common run of characters.
"""

from collections import Counter
from collections.abc import Sequence

from groupwise.core import Score
from groupwise.rewards.text_answers import normalize_text, split_tokens
from groupwise.rewards.text_reward import TextReward

_CLOSED = frozenset({"yes", "no", "noanswer"} | {"是", "是的", "否", "不", "不是", "对", "不对"})


class TokenF1(TextReward):
    """F1 of the answer's tokens against the best reference answer.

    What is no answer for the parser is invalid; an example without references cannot be scored.

    Args:
        parser: finds the answer; None: a TextParser.
        references: field with the list of right answers; without it the label is the only one.
    """

    name = "token_f1"

    def _compare(self, answer: str, references: Sequence[str]) -> Score:
        best = max(references, key=lambda reference: compute_token_f1(answer, reference))
        f1 = compute_token_f1(answer, best)
        return Score(f1, f"F1 {f1:.3f} with the reference {best!r}")


def compute_token_f1(answer: str, reference: str) -> float:
    """Return the harmonic mean of precision and recall over tokens; symmetric, in [0, 1]."""
    closed = {normalize_text(answer), normalize_text(reference)}
    if len(closed) > 1 and closed & _CLOSED:
        return 0.0
    said, right = Counter(split_tokens(answer)), Counter(split_tokens(reference))
    num_shared = (said & right).total()
    return 2 * num_shared / max(1, said.total() + right.total())
