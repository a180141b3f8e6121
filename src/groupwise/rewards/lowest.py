"""Reward: the lowest of several: what is good in one way cannot make up for another.

Range: [0, 1]. A weighted sum pays for checks with language; the lowest pays for whichever is worse.
"""

from collections.abc import Sequence

from groupwise.core import Completion, Example, Score
from groupwise.rewards.reward import Reward, RewardKind, applies_to, takes_batches


class Lowest:
    """The lowest value of the parts that apply to an example; None where one has no value.

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
        """Return whether one of the parts does."""
        return any(applies_to(part, example) for part in self.parts)

    def __call__(self, example: Example, completion: Completion) -> Score:
        """Return the score of one completion."""
        return self.score_batch([example], [completion])[0]

    def score_batch(
        self, examples: Sequence[Example], completions: Sequence[Completion]
    ) -> list[Score]:
        """Return one score per pair; a part that scores batches gets all pairs in one call."""
        columns = [_score(part, examples, completions) for part in self.parts]
        return [
            self._choose(example, row)
            for example, row in zip(examples, zip(*columns, strict=True), strict=True)
        ]

    def _choose(self, example: Example, scores: Sequence[Score]) -> Score:
        there = [
            (part.name, score)
            for part, score in zip(self.parts, scores, strict=True)
            if applies_to(part, example)
        ]
        unknown = next((pair for pair in there if pair[1].value is None), None)
        name, found = unknown or min(there, key=lambda pair: pair[1].value or 0.0)
        is_invalid = any(score.invalid for _, score in there)
        return Score(
            0.0 if is_invalid else found.value, f"{name}: {found.reason}", invalid=is_invalid
        )


def _score(
    part: Reward, examples: Sequence[Example], completions: Sequence[Completion]
) -> Sequence[Score]:
    if takes_batches(part):
        return part.score_batch(examples, completions)
    return [part(*pair) for pair in zip(examples, completions, strict=True)]
