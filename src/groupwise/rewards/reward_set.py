"""Several weighted rewards as one: the parts stay visible, a part without a value weighs nothing.

It does not catch what a reward does wrong: an exception becomes a RewardError that names the
reward, never a number.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import cast

from groupwise.core import Completion, Example, GroupwiseError, RewardError, Score
from groupwise.rewards.reward import Reward


@dataclass(frozen=True, slots=True)
class WeightedReward:
    """A reward, its weight (finite, not negative) and its name here (None: its own name)."""

    reward: Reward
    weight: float
    name: str | None = None


class RewardSet:
    """A weighted mean of rewards.

    Args:
        parts: ``{name: (reward, weight)}`` or WeightedRewards.

    Raises:
        RewardError: if there is no part, a name stands twice, a weight is not a finite number
            >= 0, or all weights are 0.
    """

    def __init__(
        self, parts: Mapping[str, tuple[Reward, float]] | Iterable[WeightedReward]
    ) -> None:
        named = _name_parts(parts)
        _check_parts([(name, weight) for name, _, weight in named])
        largest = max(weight for _, _, weight in named)
        scaled = {name: weight / largest for name, _, weight in named}
        total = math.fsum(scaled.values())
        self._rewards = {name: reward for name, reward, _ in named}
        self._given = {name: weight for name, _, weight in named}
        self._weights = {name: weight / total for name, weight in scaled.items()}

    @property
    def weights(self) -> Mapping[str, float]:
        """Weights by name; they add up to 1."""
        return dict(self._weights)

    def score(self, example: Example, completion: Completion) -> Score:
        """Return the weighted mean over the parts that have a value.

        The weights of parts without a value go to the others in proportion; without any value
        the score is None. A completion that one part calls invalid earns 0 and is invalid.

        Raises:
            RewardError: if a reward raises or does not return a Score.
        """
        scores = {
            name: _call_reward(name, reward, example, completion)
            for name, reward in self._rewards.items()
        }
        is_invalid = any(score.invalid for score in scores.values())
        return Score(
            0.0 if is_invalid else self._average(scores),
            "; ".join(f"{name}: {score.reason}" for name, score in scores.items() if score.reason),
            {name: score.value for name, score in scores.items()},
            invalid=is_invalid,
        )

    def _average(self, scores: Mapping[str, Score]) -> float | None:
        known = [
            (self._given[name], score.value)
            for name, score in scores.items()
            if score.value is not None
        ]
        largest = max((weight for weight, _ in known), default=0.0)
        if largest <= 0:
            return None
        known = [(weight / largest, value) for weight, value in known]
        total = math.fsum(weight for weight, _ in known)
        mean = math.fsum(weight * value for weight, value in known) / total
        return min(1.0, max(0.0, mean))


def _name_parts(
    parts: Mapping[str, tuple[Reward, float]] | Iterable[WeightedReward],
) -> list[tuple[str, Reward, float]]:
    if isinstance(parts, Mapping):
        by_name = cast("Mapping[str, tuple[Reward, float]]", parts)
        return [(name, reward, weight) for name, (reward, weight) in by_name.items()]
    return [(part.name or part.reward.name, part.reward, part.weight) for part in parts]


def _check_parts(parts: list[tuple[str, float]]) -> None:
    if not parts:
        raise RewardError("a reward set has no rewards", fix="give it at least one")
    names = [name for name, _ in parts]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise RewardError("a reward stands twice in a set", got=", ".join(repeated))
    for name, weight in parts:
        if not (math.isfinite(weight) and weight >= 0):
            raise RewardError(
                f"the weight of reward {name!r} is wrong", got=weight, expected="a number >= 0"
            )
    if not any(weight > 0 for _, weight in parts):
        raise RewardError("all rewards have the weight 0", fix="give one of them a weight above 0")


def _call_reward(name: str, reward: Reward, example: Example, completion: Completion) -> Score:
    try:
        score = cast("object", reward(example, completion))
    except GroupwiseError:
        raise
    except Exception as error:
        raise RewardError(
            f"reward {name!r} failed on example {example.id} ({type(error).__name__}: {error})",
            fix="return Score(None, reason) where it cannot score",
        ) from error
    if not isinstance(score, Score):
        raise RewardError(f"reward {name!r} did not return a Score", got=type(score).__name__)
    return score
