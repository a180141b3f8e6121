"""Draws problems of all types, each split with sentences of its own."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from groupwise.core import DataError, derive_seed
from groupwise_drawn.problems.code import draw_code
from groupwise_drawn.problems.maths import draw_maths
from groupwise_drawn.problems.pen import Pen, Split
from groupwise_drawn.problems.questions import draw_question

ProblemType = Literal["math", "code", "qa"]
_DRAW: Mapping[ProblemType, Callable[[Pen], dict[str, Any]]] = {
    "math": draw_maths,
    "code": draw_code,
    "qa": draw_question,
}
_CHINESE_SHARE = 0.2
_MAX_TRIES = 100


def draw_problems(
    count: int,
    *,
    seed: int,
    split: Split = "train",
    types: Sequence[ProblemType] = ("math", "code", "qa"),
) -> list[dict[str, Any]]:
    """Return fields of different problems, the types in turn; but for code, one in five is Chinese.

    Each split has sentences of its own: what is held out is worded as nothing that trains. The
    first problems of a larger count are those of a smaller one.
    """
    seen: set[str] = set()
    found: list[dict[str, Any]] = []
    for number in range(count):
        kind = types[number % len(types)]
        problem = next(
            (
                one
                for one in _draw_again(kind, f"drawn:{split}:{number}", split, seed)
                if one["problem"] not in seen
            ),
            None,
        )
        if problem is None:
            raise DataError(f"there are no {count} different problems for {split}", got=number)
        seen.add(problem["problem"])
        found.append(problem)
    return found


def _draw_again(
    kind: ProblemType, identity: str, split: Split, seed: int
) -> Iterator[dict[str, Any]]:
    """Yield problems that could stand at one place."""
    for attempt in range(_MAX_TRIES):
        rng = random.Random(derive_seed(seed, "problem", identity, attempt))
        in_chinese = kind != "code" and rng.random() < _CHINESE_SHARE
        pen = Pen(rng, split, "zh" if in_chinese else "en")
        yield {"id": identity, "source": "drawn", "cluster": identity, **_DRAW[kind](pen)}
