"""Several rewards as one: by weights, where the parts stay visible, or by the lowest of them.

The example alone says what weighs. A part that does not apply to an example weighs nothing for any
answer to it; where one that does has no value, the answer has no score. So no two answers of a
group are paid by other weights. What a reward does wrong is not caught: an exception becomes a
RewardError that names the reward, never a number.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self, TypeVar, cast

from groupwise.core import Completion, Example, Fact, GroupwiseError, RewardError, Score
from groupwise.rewards.reward import (
    AnswerReward,
    Answers,
    BatchReward,
    Reward,
    RewardKind,
    applies_to,
    explain_unusable,
    parse_all,
    read_kind,
    takes_batches,
)

T = TypeVar("T")
_SMALLEST_GAP = 1e-6


class RewardSet:
    """A weighted mean of rewards.

    Where a ``human`` part applies, truths and judgements are dropped. A judgement may not outvote
    a known truth: either every truth weighs more than all judgements together, or with
    ``drop_contradicted`` a judgement that lies on the other side of 1/2 than the truth counts as
    what the truth says.

    Args:
        parts: ``{name: (reward, weight)}``.
        drop_contradicted: whether what a judgement says against a known truth is dropped.

    Raises:
        RewardError: if there is no part, a weight is not a finite number >= 0, all weights are 0, a
            reward's kind is unknown, or a judgement could outvote a known truth.
    """

    def __init__(
        self, parts: Mapping[str, tuple[Reward, float]], *, drop_contradicted: bool = False
    ) -> None:
        if not parts:
            raise RewardError("a reward set has no rewards", fix="give it at least one")
        for name, (_, weight) in parts.items():
            if not (math.isfinite(weight) and weight >= 0):
                raise RewardError(
                    f"the weight of reward {name!r} is wrong", got=weight, expected="a number >= 0"
                )
        self._given = {name: weight for name, (_, weight) in parts.items()}
        if not any(self._given.values()):
            fix = "give one of them a weight above 0"
            raise RewardError("all rewards have the weight 0", fix=fix)
        self.rewards: Mapping[str, Reward] = {name: reward for name, (reward, _) in parts.items()}
        self.kinds: Mapping[str, RewardKind] = {n: read_kind(r) for n, r in self.rewards.items()}
        self.drops_contradicted = drop_contradicted
        self._refuse_outvoting()

    def _refuse_outvoting(self) -> None:
        """Refuse weights with which a wrong answer can earn as much as the right one."""
        truths, judged = (
            {name: w for name, w in self.weights.items() if w > 0 and self.kinds[name] == kind}
            for kind in ("truth", "judgement")
        )
        against = 0.0 if self.drops_contradicted else math.fsum(judged.values())
        if not truths or not judged or min(truths.values()) - against > _SMALLEST_GAP:
            return
        shown = ", ".join(f"{name} {weight:.4g}" for name, weight in {**truths, **judged}.items())
        how = "" if self.drops_contradicted else " or use RewardSet(..., drop_contradicted=True)"
        raise RewardError(
            f"{', '.join(judged)} can outvote the truth of {', '.join(truths)}",
            got=f"the weights {shown}",
            expected="every truth to weigh more than all judgements together",
            fix=f"give the truth more weight{how}",
        )

    @property
    def weights(self) -> Mapping[str, float]:
        """Weights by name; they add up to 1."""
        return _share_out(self._given)

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
        columns = _score_parts(self.rewards.items(), examples, completions)
        return [
            self._combine(example, dict(zip(self.rewards, row, strict=True)))
            for example, row in zip(examples, zip(*columns, strict=True), strict=True)
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
            for name, reward in self.rewards.items()
            if self._given[name] > 0
            and _guard(name, partial(applies_to, reward, example), place=f"on example {example.id}")
        }
        if "human" in map(self.kinds.get, there):
            there = {n: w for n, w in there.items() if self.kinds[n] not in ("truth", "judgement")}
        return _share_out(there) if there else {}

    def explain_unusable(self, example: Example) -> str | None:
        """Return which parts that weigh something can score no answer to ``example``, and why.

        None if every part can, or does not say.

        Raises:
            RewardError: if a part raises.
        """
        place = f"on example {example.id}"
        reasons = {
            name: _guard(name, partial(explain_unusable, self.rewards[name], example), place=place)
            for name in self.weigh(example)
        }
        return "; ".join(f"{name}: {why}" for name, why in reasons.items() if why) or None

    def _combine(self, example: Example, scores: Mapping[str, Score]) -> Score:
        weights = self.weigh(example)
        settled = self._settle(scores, weights)
        is_invalid = any(score.invalid for score in settled.values())
        facts: dict[str, Fact] = {}
        for score in scores.values():
            repeated = score.facts.keys() & (facts.keys() | self.rewards.keys())
            if repeated:
                raise RewardError(
                    "two rewards of a set tell a fact of one name, or it is that of a reward",
                    got=", ".join(sorted(repeated)),
                )
            facts |= score.facts
        return Score(
            0.0 if is_invalid else _average(settled, weights),
            "; ".join(f"{name}: {score.reason}" for name, score in settled.items() if score.reason),
            {name: score.value for name, score in settled.items()},
            invalid=is_invalid,
            facts=facts,
        )

    def _settle(
        self, scores: Mapping[str, Score], weights: Mapping[str, float]
    ) -> Mapping[str, Score]:
        """Return the scores after what a person or a known truth has to say about them."""
        truths = {name: w for name, w in weights.items() if self.kinds[name] == "truth"}
        truth = _average(scores, _share_out(truths)) if truths else None
        is_decided = "human" in map(self.kinds.get, weights)
        settled = dict(scores)
        for name, score in scores.items():
            kind = self.kinds[name]
            if score.value is None or score.invalid or kind not in ("truth", "judgement"):
                continue  # what is no answer stays invalid
            said = f"it said {score.value:.4g}" + (f" ({score.reason})" if score.reason else "")
            is_judged = self.drops_contradicted and kind == "judgement"
            if is_decided:
                settled[name] = Score(None, f"dropped, as a person decided: {said}")
            elif is_judged and truth is not None and (score.value - 0.5) * (truth - 0.5) < 0:
                why = "counts as the truth, which contradicts it"
                settled[name] = Score(truth, f"{why}: {said}")
        return settled


class Lowest(BatchReward):
    """The lowest value of the parts that apply to an example; None where one has no value.

    A weighted sum pays for checks with language; the lowest pays for whichever is worse: what is
    good in one way cannot make up for another.

    Args:
        name: in metrics.
        parts: by their names, which the reason tells.
        kind: what it rests on.
    """

    def __init__(self, name: str, parts: Sequence[Reward], *, kind: RewardKind = "other") -> None:
        self.name = name
        self.parts = tuple(parts)
        self.kind: RewardKind = kind

    @property
    def unseen(self) -> set[str]:
        """What the parts were found to depend on that their digests do not know."""
        return {what for part in self.parts for what in getattr(part, "unseen", ())}

    def applies_to(self, example: Example) -> bool:
        return any(applies_to(part, example) for part in self.parts)

    def score_batch(
        self, examples: Sequence[Example], completions: Sequence[Completion]
    ) -> list[Score]:
        named = [(part.name, part) for part in self.parts]
        columns = _score_parts(named, examples, completions)
        scores: list[Score] = []
        for example, row in zip(examples, zip(*columns, strict=True), strict=True):
            pairs = zip(self.parts, row, strict=True)
            there = [(part.name, score) for part, score in pairs if applies_to(part, example)]
            there = there or [(self.name, Score(None, "none of its parts applies"))]
            unknown = next((pair for pair in there if pair[1].value is None), None)
            name, lowest = unknown or min(there, key=lambda pair: pair[1].value or 0.0)
            is_invalid = any(score.invalid for _, score in there)
            value = 0.0 if is_invalid else lowest.value
            scores.append(Score(value, f"{name}: {lowest.reason}", invalid=is_invalid))
        return scores


def _score_parts(
    rewards: Iterable[tuple[str, Reward]],
    examples: Sequence[Example],
    completions: Sequence[Completion],
) -> list[Sequence[Score]]:
    """Return one score per pair from each reward; an answer is parsed once for all of them."""
    pairs = list(zip(examples, completions, strict=True))
    place = f"on a batch of {len(pairs)}"
    answers: Answers = []

    def score_answers(reward: AnswerReward) -> Sequence[object]:
        return reward.score_answers(examples, parse_all(reward, examples, completions, answers))

    def score_batch(reward: BatchReward) -> Sequence[object]:
        return list(reward.score_batch(list(examples), list(completions)))

    columns: list[Sequence[Score]] = []
    for name, reward in rewards:
        if isinstance(reward, AnswerReward) and reward.takes_answers:
            scores = _guard(name, partial(score_answers, reward), place=place)
        elif takes_batches(reward):
            scores = _guard(name, partial(score_batch, reward), place=place)
        else:
            scores = [
                _guard(name, partial(reward, *pair), place=f"on example {pair[0].id}")
                for pair in pairs
            ]
        if len(scores) != len(pairs):
            raise RewardError(f"reward {name!r} lost count {place}", got=f"{len(scores)} scores")
        for score in scores:
            if not isinstance(score, Score):
                got = type(score).__name__
                raise RewardError(f"reward {name!r} did not return a Score", got=got)
        columns.append(cast("Sequence[Score]", scores))
    return columns


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


def _average(scores: Mapping[str, Score], weights: Mapping[str, float]) -> float | None:
    """Return the mean by weights that add up to 1; None if there are none or a value is missing."""
    values = {name: scores[name].value for name in weights}
    known = [weights[name] * value for name, value in values.items() if value is not None]
    if not weights or len(known) < len(weights):
        return None
    mean = math.fsum(known) / math.fsum(weights.values())  # exactly 1 where every part is
    return min(1.0, max(0.0, mean))


def _share_out(weights: Mapping[str, float]) -> dict[str, float]:
    """Return weights that add up to 1, also where the given ones would overflow."""
    largest = max(weights.values())
    scaled = {name: weight / largest for name, weight in weights.items()}
    total = math.fsum(scaled.values())
    return {name: weight / total for name, weight in scaled.items()}


def describe_weights(weights: Mapping[str, float], *, absent: Iterable[str] = ()) -> str:
    """Return the weights that count, as one line.

    Args:
        weights: of all parts, by name.
        absent: parts that have no value; their weight goes to the others in proportion.

    Raises:
        RewardError: if there is no such part, or no weight is left.
    """
    missing = list(dict.fromkeys(absent))
    for name in missing:
        if name not in weights:
            raise RewardError(
                "no such reward in the set", got=repr(name), expected=", ".join(weights)
            )
    left = {name: weight for name, weight in weights.items() if name not in missing}
    if not any(left.values()):
        raise RewardError("no reward with a weight is left", got=f"absent {', '.join(missing)}")
    line = ", ".join(f"{name} {weight:.4g}" for name, weight in _share_out(left).items())
    return f"{line} (absent: {', '.join(missing)})" if missing else line


@dataclass
class FactCounts:
    """What rewards tell of completions besides scores: truth values, numbers and texts, added up.

    Rows of metrics are of several steps and processes: ``merge`` counts what another has counted.
    """

    num: int = 0  # completions, whether anything is told of them or not
    shares: Counter[tuple[str, bool]] = field(default_factory=Counter[tuple[str, bool]])
    sums: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    texts: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    def add(self, facts: Iterable[Mapping[str, Fact]]) -> None:
        for told in facts:
            self.num += 1
            for name, value in told.items():
                if isinstance(value, bool):
                    self.shares[name, value] += 1
                elif isinstance(value, str):
                    self.texts[name][value] += 1
                else:
                    self.sums[name].append(value)

    def merge(self, other: Self) -> None:
        self.num += other.num
        self.shares.update(other.shares)
        for name, values in other.sums.items():
            self.sums[name] += values
        for name, counts in other.texts.items():
            self.texts[name].update(counts)

    def tabulate(self) -> dict[str, Any]:
        """Return what a row of metrics says: curves by name, and under ``facts`` their counts."""
        shares = {
            name: [self.shares[name, True], self.shares[name, True] + self.shares[name, False]]
            for name in dict.fromkeys(name for name, _ in self.shares)
        }
        families: defaultdict[str, list[str]] = defaultdict(list)
        for name, counts in sorted(self.texts.items()):
            family, stroke, _ = name.partition("/")
            if stroke:
                shares[f"commonest_{name}"] = [max(counts.values()), counts.total()]
                families[family].append(counts.most_common(1)[0][0])
        sums = {name: [sum(values), len(values)] for name, values in self.sums.items()}
        if not (shares or sums or self.texts):
            return {}
        curves = {f"reward/{name}": part / num for name, (part, num) in shares.items()}
        curves |= {f"mean/{name}": total / num for name, (total, num) in sums.items()}
        # Whether one text is the commonest of all kinds, where there are several.
        alike = [len(set(one)) == 1 for one in families.values() if len(one) > 1]
        if alike:
            curves["reward/collapsed"] = float(any(alike))
        texts = {
            name: {
                "num": counts.total(),
                "different": len(counts),
                "commonest": [list(one) for one in counts.most_common(12)],
            }
            for name, counts in sorted(self.texts.items())
        }
        facts = {"num": self.num, "shares": shares, "sums": sums, "texts": texts}
        return {**curves, "facts": facts}
