"""How near questions are to what people said: by the words of the row and the look of pictures."""

from collections.abc import Sequence

from sklearn.metrics.pairwise import cosine_distances

from groupwise.core import Example
from groupwise.evaluation.baselines import count_words
from groupwise.evaluation.sights import Numbers, see


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


def _centre(pixels: Numbers) -> Numbers:
    return pixels - pixels.mean(axis=1, keepdims=True)
