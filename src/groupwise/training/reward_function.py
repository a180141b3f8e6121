"""A RewardSet in the call shape of TRL's reward functions."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from groupwise.core import Completion, Example, Score
from groupwise.rewards import RewardSet


class RewardFunction:
    """Scores completions with a RewardSet; parts, invalid and unscored shares are logged.

    Args:
        examples: looked up by the ``place`` of a row.
        rewards: what scores.
        end_token_ids: a completion that does not end with one of them was truncated.
    """

    __name__ = "reward"

    def __init__(
        self, examples: Sequence[Example], rewards: RewardSet, *, end_token_ids: Sequence[int]
    ) -> None:
        self.examples = examples
        self.rewards = rewards
        self.end_token_ids = frozenset(end_token_ids)

    @property
    def runs_beside_scoring(self) -> bool:
        """Whether the rewards say that they may be at work while the policy is scored."""
        return self.rewards.runs_beside_scoring

    def __call__(
        self,
        *,
        completions: Sequence[list[dict[str, str]]],
        completion_ids: Sequence[list[int]],
        place: Sequence[int],
        log_metric: Callable[[str, float], None],
        **_: Any,
    ) -> list[float | None]:
        """Return one value in [0, 1] per completion, or None where nothing could be scored."""
        scores = self.rewards.score_batch(
            [self.examples[index] for index in place],
            [
                self._wrap(messages[0]["content"], ids)
                for messages, ids in zip(completions, completion_ids, strict=True)
            ],
        )
        self._log(scores, log_metric)
        return [score.value for score in scores]

    def _wrap(self, text: str, ids: Sequence[int]) -> Completion:
        has_ended = bool(ids) and ids[-1] in self.end_token_ids
        return Completion(text, tuple(ids), finish_reason="stop" if has_ended else "length")

    def _log(self, scores: Sequence[Score], log_metric: Callable[[str, float], None]) -> None:
        log_metric("invalid", sum(score.invalid for score in scores) / len(scores))
        log_metric("unscored", sum(score.value is None for score in scores) / len(scores))
        for name in self.rewards.weights:
            values = [v for s in scores if (v := s.breakdown.get(name)) is not None]
            if values:
                mean = sum(values) / len(values)
                spread = sum((value - mean) ** 2 for value in values) / len(values)
                log_metric(f"reward/{name}", mean)
                log_metric(f"reward/{name}_std", math.sqrt(spread))
