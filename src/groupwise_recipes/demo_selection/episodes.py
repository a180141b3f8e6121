"""Episodes that teach to look words up: turns that show words, then turns that ask for them."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from groupwise_drawn.dialects import DIALECTS, WORDINGS, WORDS

_Cell = tuple[str, str]
_CONTRADICTING_SHARE = 0.3


@dataclass(frozen=True)
class Turn:
    """A question about a scene and its answer.

    Attributes:
        question: in one of the wordings.
        place: of the scene.
        word: the answer.
        is_taught: whether the answer is taught; else it is only shown.
    """

    question: str
    place: int
    word: str
    is_taught: bool


def draw_episode(
    scenes: Mapping[str, Sequence[int]], *, num_shots: int, rng: random.Random
) -> list[Turn]:
    """Return turns that show words and then, in another order, ask for the same.

    Words are drawn anew. In three of ten episodes something is shown twice, with two words: the
    last one is asked for.
    """
    cells = _draw_cells(sorted(scenes), num_shots, rng)
    if num_shots > 1 and rng.random() < _CONTRADICTING_SHARE:
        cells[rng.randrange(num_shots - 1)] = cells[-1]
    words: dict[_Cell, str] = {}
    turns: list[Turn] = []
    for cell in cells:
        words[cell] = rng.choice([one for one in WORDS if one != words.get(cell)])
        turns.append(_ask(cell, words[cell], scenes, rng, is_taught=False))
    asked = rng.sample(sorted(words), len(words))
    return [*turns, *(_ask(cell, words[cell], scenes, rng, is_taught=True) for cell in asked)]


def _draw_cells(colors: Sequence[str], number: int, rng: random.Random) -> list[_Cell]:
    """Return different pairs of a dialect and a colour; many share one of both."""
    cells = [(rng.choice(DIALECTS), rng.choice(colors))]
    while len(cells) < number:
        dialect, color = rng.choice(cells)
        shared = rng.random()
        dialect = dialect if shared < 0.35 else rng.choice(DIALECTS)
        color = color if 0.35 <= shared < 0.7 else rng.choice(colors)
        cells += [(dialect, color)] if (dialect, color) not in cells else []
    return cells


def _ask(
    cell: _Cell,
    word: str,
    scenes: Mapping[str, Sequence[int]],
    rng: random.Random,
    *,
    is_taught: bool,
) -> Turn:
    dialect, color = cell
    question = rng.choice(WORDINGS).format(dialect)
    return Turn(question, rng.choice(scenes[color]), word, is_taught)
