"""How near questions are to what people said: by the words of the row and the look of pictures."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from groupwise.core import Example
from groupwise.evaluation.baselines import count_words
from groupwise.evaluation.sights import Numbers, see
from groupwise.evaluation.untyped import cosine_distances


class Nearness:
    """Distances to learned items; what words weigh is learned from these alone.

    Args:
        learned: at least one.
    """

    def __init__(self, learned: Sequence[Example]) -> None:
        self._sights = see(learned)
        self._words = count_words(self._sights.texts).fit(self._sights.texts)
        self._known = self._words.transform(self._sights.texts)

    def measure(self, asked: Sequence[Example]) -> Numbers:
        """Return distances (asked, learned), 0 or more.

        The cosine distance of words and letters (TF-IDF), and, where there are pictures, one minus
        the correlation of their thumbnails, edges and colours.
        """
        sights = see(asked, like=self._sights)
        found = cosine_distances(self._words.transform(sights.texts), self._known)
        if self._sights.pixels.shape[1]:
            found += cosine_distances(_centre(sights.pixels), _centre(self._sights.pixels))
        return found


def choose_threshold(
    gaps: Numbers, is_near_right: NDArray[np.bool_], is_served_right: NDArray[np.bool_]
) -> float:
    """Return the distance up to which the nearest item is to answer; -inf: never.

    It is the least at which most learned items are answered right, each by the nearest item of
    another session up to it, and by the served version beyond.

    Args:
        gaps: (n,) distance of each learned item to the nearest of another session; inf: none.
        is_near_right: (n,) whether the label of that one is right.
        is_served_right: (n,) whether the served version is right.
    """
    levels = [-np.inf, *np.unique(gaps[np.isfinite(gaps)])]
    hits = [np.where(gaps <= level, is_near_right, is_served_right).sum() for level in levels]
    return float(levels[int(np.argmax(hits))])


def _centre(pixels: Numbers) -> Numbers:
    return pixels - pixels.mean(axis=1, keepdims=True)
