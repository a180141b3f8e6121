"""Whether new pictures look like those that a policy was trained on.

A picture's distance is that of its thumbnail to the nearest cluster of the training pictures'. The
distances of new pictures are compared with those of held-out ones by the two-sample
Kolmogorov-Smirnov test, which needs no bins and knows how few held-out pictures there are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import ks_2samp
from sklearn.cluster import KMeans

from groupwise.core import open_picture

ALARM_LEVEL = 0.001
"""Share of windows without drift that raise a false alarm, at most."""
MIN_HELD_OUT = 20
"""Held-out pictures below which there is no reference."""
_SIDES = (32, 24)
_NUM_CLUSTERS = 16
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class DriftReference:
    """How far held-out pictures are from the training pictures.

    Attributes:
        centroids: (clusters, features) thumbnails.
        distances: of held-out pictures, one of each session, so that they are independent.
    """

    centroids: Floats
    distances: Floats

    def measure(self, path: Path) -> float:
        """Return the distance of a picture: the root mean square of its pixels', in [0, 1].

        Raises:
            DataError: if it is no picture.
        """
        return float(_find_distances(self.centroids, _see(path)[None])[0])

    def compare(self, distances: Sequence[float]) -> tuple[float, float]:
        """Return the largest gap between the two distributions, in [0, 1], and its p-value.

        Args:
            distances: of new pictures, one of each session.
        """
        found = ks_2samp(distances, self.distances)
        return float(found.statistic), float(found.pvalue)


def fit_reference(
    train: Sequence[Path], held_out: Sequence[Path], *, seed: int
) -> DriftReference | None:
    """Return the reference of some pictures; None if there are too few.

    Args:
        train: pictures that were trained on.
        held_out: pictures of other sessions, one of each.
        seed: of the clusters.

    Raises:
        DataError: if a file is no picture.
    """
    if len(train) < _NUM_CLUSTERS or len(held_out) < MIN_HELD_OUT:
        return None
    seen = np.stack([_see(path) for path in train])
    model = KMeans(_NUM_CLUSTERS, n_init=1, random_state=seed % 2**32).fit(seen)
    centroids = np.asarray(model.cluster_centers_, dtype=np.float64)
    others = np.stack([_see(path) for path in held_out])
    return DriftReference(centroids, _find_distances(centroids, others))


def _see(path: Path) -> Floats:
    """Return a thumbnail's colours, in [0, 1]."""
    small = open_picture(path).resize(_SIDES)
    return np.asarray(small, dtype=np.float64).ravel() / 255


def _find_distances(centroids: Floats, seen: Floats) -> Floats:
    gaps = ((seen[:, None] - centroids[None]) ** 2).mean(axis=2)
    return np.sqrt(gaps.min(axis=1))
