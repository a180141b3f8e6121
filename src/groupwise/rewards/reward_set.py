"""Several weighted rewards as one: the parts stay visible, and the example alone says what weighs.

A part that does not apply to an example weighs nothing for any answer to it; where one that does
has no value, the answer has no score. So no two answers of a group are paid by other weights.
It does not catch what a reward does wrong: an exception becomes a RewardError that names the
reward, never a number.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar, cast

from groupwise.core import Completion, Example, Fact, GroupwiseError, RewardError, Score
from groupwise.rewards.reward import (
    Reward,
    RewardKind,
    applies_to,
    explain_unusable,
    read_kind,
    takes_batches,
)
from groupwise.rewards.weights import check_outvoting, share_out

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WeightedReward:
    """A reward, its weight (finite, not negative) and its name here (None: its own name)."""

    reward: Reward
    weight: float
    name: str | None = None


class RewardSet:
    """A weighted mean of rewards.

    Where a ``human`` part applies, truths and judgements are dropped. A judgement may not outvote
    a known truth: either every truth weighs more than all judgements together, or with
    ``drop_contradicted`` a judgement that lies on the other side of 1/2 than the truth counts as
    what the truth says.

    Args:
        parts: ``{name: (reward, weight)}`` or WeightedRewards.
        drop_contradicted: whether what a judgement says against a known truth is dropped.

    Raises:
        RewardError: if there is no part, a name appears twice, a weight is not a finite number
            >= 0, all weights are 0, a reward's kind is unknown, or a judgement could outvote a
            known truth.
    """

    def __init__(
        self,
        parts: Mapping[str, tuple[Reward, float]] | Iterable[WeightedReward],
        *,
        drop_contradicted: bool = False,
    ) -> None:
        named = _name_parts(parts)
        _check_parts([(name, weight) for name, _, weight in named])
        self._rewards = {name: reward for name, reward, _ in named}
        self._kinds: dict[str, RewardKind] = {name: read_kind(reward) for name, reward, _ in named}
        self._given = {name: weight for name, _, weight in named}
        self._drops_contradicted = drop_contradicted
        check_outvoting(self.weights, self._kinds, drops_contradicted=drop_contradicted)

    @property
    def weights(self) -> Mapping[str, float]:
        """Weights by name; they add up to 1."""
        return share_out(self._given)

    @property
    def kinds(self) -> Mapping[str, RewardKind]:
        """What each part rests on, by name."""
        return dict(self._kinds)

    @property
    def rewards(self) -> Mapping[str, Reward]:
        """The parts by name."""
        return dict(self._rewards)

    @property
    def drops_contradicted(self) -> bool:
        """Whether what a judgement says against a known truth is dropped."""
        return self._drops_contradicted

    def score(self, example: Example, completion: Completion) -> Score:
        """Return the weighted mean over the parts that apply to the example.

        Where one of them has no value, or none applies, the score is None. A completion that one
        part calls invalid earns 0 and is invalid.

        Raises:
            RewardError: if a reward raises or does not return a Score.
        """
        return self.score_batch([example], [completion])[0]

    def score_batch(
        self, examples: Sequence[Example], completions: Sequence[Completion]
    ) -> list[Score]:
        """Return one score per pair, in order; a BatchReward gets all pairs in one call.

        Raises:
            RewardError: if a reward raises, or does not return one Score per pair.
        """
        pairs = list(zip(examples, completions, strict=True))
        columns = [_call_reward(name, reward, pairs) for name, reward in self._rewards.items()]
        rows = zip(*columns, strict=True)
        return [
            self._combine(example, dict(zip(self._rewards, row, strict=True)))
            for example, row in zip(examples, rows, strict=True)
        ]

    def weigh(self, example: Example) -> Mapping[str, float]:
        """Return the weights that count for every answer to ``example``; they add up to 1.

        Parts of weight 0 and those that do not apply are left out, and truths and judgements
        where a person decided. Empty if nothing is left.

        Raises:
            RewardError: if a part raises.
        """
        there = {
            name: self._given[name]
            for name, reward in self._rewards.items()
            if self._given[name] > 0
            and _guard(name, partial(applies_to, reward, example), place=f"on example {example.id}")
        }
        if "human" in map(self._kinds.get, there):
            there = {name: w for name, w in there.items() if not self._is_overruled(name)}
        return share_out(there) if there else {}

    def explain_unusable(self, example: Example) -> str | None:
        """Return which parts that weigh something can score no answer to ``example``, and why.

        None if every part can, or does not say.

        Raises:
            RewardError: if a part raises.
        """
        found = {
            name: _guard(
                name,
                partial(explain_unusable, self._rewards[name], example),
                place=f"on example {example.id}",
            )
            for name in self.weigh(example)
        }
        return "; ".join(f"{name}: {why}" for name, why in found.items() if why) or None

    def _combine(self, example: Example, scores: Mapping[str, Score]) -> Score:
        weights = self.weigh(example)
        settled = self._settle(scores, weights)
        is_invalid = any(score.invalid for score in settled.values())
        return Score(
            0.0 if is_invalid else _average(settled, weights),
            "; ".join(f"{name}: {score.reason}" for name, score in settled.items() if score.reason),
            {name: score.value for name, score in settled.items()},
            invalid=is_invalid,
            facts=self._join_facts(scores.values()),
        )

    def _join_facts(self, scores: Iterable[Score]) -> dict[str, Fact]:
        """Return what all parts tell."""
        found: dict[str, Fact] = {}
        for score in scores:
            repeated = score.facts.keys() & (found.keys() | self._rewards.keys())
            if repeated:
                raise RewardError(
                    "two rewards of a set tell a fact of one name, or it is that of a reward",
                    got=", ".join(sorted(repeated)),
                )
            found |= score.facts
        return found

    def _settle(
        self, scores: Mapping[str, Score], weights: Mapping[str, float]
    ) -> Mapping[str, Score]:
        """Return the scores after what a person or a known truth has to say about them."""
        if "human" in map(self._kinds.get, weights):
            return {n: _drop(s) if self._is_overruled(n) else s for n, s in scores.items()}
        truths = {name: w for name, w in weights.items() if self._kinds[name] == "truth"}
        truth = _average(scores, share_out(truths)) if truths else None
        if truth is None or not self._drops_contradicted:
            return scores
        return {
            name: _moderate(score, truth) if self._kinds[name] == "judgement" else score
            for name, score in scores.items()
        }

    def _is_overruled(self, name: str) -> bool:
        return self._kinds[name] in ("truth", "judgement")


def _average(scores: Mapping[str, Score], weights: Mapping[str, float]) -> float | None:
    """Return the mean by weights that add up to 1; None if there are none or a value is missing."""
    values = {name: scores[name].value for name in weights}
    known = [weights[name] * value for name, value in values.items() if value is not None]
    if not weights or len(known) < len(weights):
        return None
    mean = math.fsum(known) / math.fsum(weights.values())  # exactly 1 where every part is
    return min(1.0, max(0.0, mean))


def _drop(score: Score) -> Score:
    """Return a score without its value; what is no answer stays invalid."""
    if score.value is None or score.invalid:
        return score
    said = f" ({score.reason})" if score.reason else ""
    return Score(None, f"dropped, as a person decided: it said {score.value:.4g}{said}")


def _moderate(score: Score, truth: float) -> Score:
    """Return a judgement, or the truth where that lies on the other side of 1/2."""
    if score.value is None or score.invalid or (score.value - 0.5) * (truth - 0.5) >= 0:
        return score
    said = f" ({score.reason})" if score.reason else ""
    return Score(
        truth, f"counts as the truth, which contradicts it: it said {score.value:.4g}{said}"
    )


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
        raise RewardError("a reward appears twice in a set", got=", ".join(repeated))
    for name, weight in parts:
        if not (math.isfinite(weight) and weight >= 0):
            raise RewardError(
                f"the weight of reward {name!r} is wrong", got=weight, expected="a number >= 0"
            )
    if not any(weight > 0 for _, weight in parts):
        raise RewardError("all rewards have the weight 0", fix="give one of them a weight above 0")


def _call_reward(
    name: str, reward: Reward, pairs: Sequence[tuple[Example, Completion]]
) -> list[Score]:
    """Return one score per pair."""
    if takes_batches(reward):
        batch = reward

        def score_all() -> Sequence[object]:
            return list(batch.score_batch([e for e, _ in pairs], [c for _, c in pairs]))

        place = f"on a batch of {len(pairs)}"
        scores = _guard(name, score_all, place=place)
        if len(scores) != len(pairs):
            raise RewardError(f"reward {name!r} lost count {place}", got=f"{len(scores)} scores")
    else:
        scores = [
            _guard(name, partial(reward, example, completion), place=f"on example {example.id}")
            for example, completion in pairs
        ]
    for score in scores:
        if not isinstance(score, Score):
            raise RewardError(f"reward {name!r} did not return a Score", got=type(score).__name__)
    return cast("list[Score]", scores)


def _guard(name: str, call: Callable[[], T], *, place: str) -> T:
    try:
        return call()
    except GroupwiseError:
        raise
    except Exception as error:
        raise RewardError(
            f"reward {name!r} failed {place} ({type(error).__name__}: {error})",
            fix="return Score(None, reason) where it cannot score",
        ) from error
