"""Easy rows first: the order of a first epoch.

Source: Bengio et al. 2009, Curriculum learning.
"""

from collections.abc import Sequence

from groupwise.core import Example, TrainingError

_RANKS = {"easy": 0, "hard": 2}


def rank_difficulties(examples: Sequence[Example]) -> list[int]:
    """Return 0 for an example whose field ``difficulty`` is ``easy``, 2 for ``hard``, else 1.

    Raises:
        TrainingError: if it is neither for any of them.
    """
    ranks = [_RANKS.get(str(example.fields.get("difficulty")), 1) for example in examples]
    if examples and set(ranks) == {1}:
        raise TrainingError(
            "easy_first: no row says that it is easy or hard",
            fix="give rows a field difficulty (easy, hard), or set easy_first to false",
        )
    return ranks
