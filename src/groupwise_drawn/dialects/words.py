"""The words of a world: which word a dialect has for a colour, and which it had before."""

import random
from collections.abc import Mapping
from dataclasses import dataclass

from groupwise.core import DataError, derive_seed
from groupwise_drawn.dialects.vocabulary import COLORS, DIALECTS, WORDS, Color

__all__ = ["Cell", "Dictionary", "draw_dictionary"]

Cell = tuple[str, Color]
"""A dialect and a colour."""


@dataclass(frozen=True, slots=True)
class Dictionary:
    """Words by dialect and colour.

    Attributes:
        words: that count.
        former: that counted before; another word in the cells that were revised.
    """

    words: Mapping[Cell, str]
    former: Mapping[Cell, str]


def draw_dictionary(*, seed: int, revised_share: float = 0.5) -> Dictionary:
    """Draw the words of a world.

    A dialect has different words for different colours, of the same few that all dialects use;
    a former word may be another colour's today.

    Args:
        seed: decides everything.
        revised_share: in [0, 1]: chance of a word to have been revised.
    """
    if not 0.0 <= revised_share <= 1.0:
        raise DataError("revised_share is out of range", got=revised_share, expected="from 0 to 1")
    rng = random.Random(derive_seed(seed, "dictionary"))
    words: dict[Cell, str] = {}
    for dialect in DIALECTS:
        own = rng.sample(WORDS, len(COLORS))
        words |= {(dialect, color): word for color, word in zip(COLORS, own, strict=True)}
    former = {
        cell: rng.choice([other for other in WORDS if other != word])
        if rng.random() < revised_share
        else word
        for cell, word in words.items()
    }
    return Dictionary(words, former)
