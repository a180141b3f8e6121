r"""Reward: is the completion within its length?

Range: [0, 1]. Source: soft overlong punishment of DAPO (Yu et al. 2025, equation 13) for a length
of |y| tokens, shifted by 1 so that it fits beside other rewards::

    1                                   if |y| <= max - cache
    (max - |y|) / cache                 if max - cache < |y| <= max
    0                                   if max < |y|
"""

from groupwise.core import Completion, Example, RewardError, Score
from groupwise.rewards.reward import RewardKind


class SoftOverlong:
    """1 up to a length, then falling to 0; it says nothing about the answer.

    Alone it would pay an empty answer, so it belongs beside a reward that does not. A completion
    without token ids cannot be scored.

    Args:
        max_tokens: length that earns 0; at most what generation allows.
        cache_tokens: over so many tokens before that the value falls.
    """

    name = "soft_overlong"
    kind: RewardKind = "shaping"

    def __init__(self, *, max_tokens: int, cache_tokens: int) -> None:
        if not 0 < cache_tokens <= max_tokens:
            raise RewardError(
                "cache_tokens must be from 1 to max_tokens",
                got=f"cache_tokens {cache_tokens}, max_tokens {max_tokens}",
            )
        self.max_tokens = max_tokens
        self.cache_tokens = cache_tokens

    def __call__(self, example: Example, completion: Completion) -> Score:
        """Return the score; the example plays no part in it."""
        length = len(completion.token_ids)
        if length == 0 and completion.text:
            return Score(None, "no token ids")
        value = min(1.0, max(0.0, (self.max_tokens - length) / self.cache_tokens))
        return Score(value, f"{length} of {self.max_tokens} tokens")
