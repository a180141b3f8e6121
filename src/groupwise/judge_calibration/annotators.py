"""Several annotators of the same pairs: how far they agree, and how far a judge agrees with each.

Ties are an answer like any other; who was not asked about a pair is left out.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from groupwise.evaluation.statistics import bound_clustered
from groupwise.judge_calibration.rows import VerdictRow

Floats = NDArray[np.float64]
Labels = Sequence[str | None]


def measure_alpha(
    annotators: Mapping[str, Labels], clusters: Mapping[str, str], *, seed: int = 0
) -> tuple[float, tuple[float, float], int] | None:
    """Return Krippendorff's alpha for names, its interval, and how many pairs it is of.

    1 is agreement everywhere, 0 what chance gives; below it people contradict each other. None
    where no pair has two annotators or all of them always say the same word.

    Source: Krippendorff 2011, "Computing Krippendorff's alpha-reliability", section C: nominal
    data, any number of observers, missing data.
    """
    known = {pair: [x for x in labels if x is not None] for pair, labels in annotators.items()}
    units = {pair: labels for pair, labels in sorted(known.items()) if len(labels) > 1}
    names = sorted({label for labels in units.values() for label in labels})
    if len(names) < 2:
        return None
    counts = [Counter(labels) for labels in units.values()]
    table = np.asarray([[one[name] for name in names] for one in counts], dtype=np.float64)
    sizes = table.sum(axis=1)
    unlike = (sizes**2 - (table**2).sum(axis=1)) / (sizes - 1)
    cells = np.column_stack([unlike, table])
    value = float(_divide(cells.sum(axis=0))[0])
    (ends,) = bound_clustered([clusters[pair] for pair in units], cells, _divide, seed=seed)
    return value, ends or (-1.0, 1.0), len(units)


def _divide(sums: Floats) -> Floats:
    """Return alpha (1, ...) of sums (..., 1 + names): 1 - observed over expected disagreement."""
    counts = sums[..., 1:]
    total = counts.sum(axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        expected = (total**2 - (counts**2).sum(axis=-1)) / (total - 1)
        return (1 - sums[..., 0] / np.where(expected > 0, expected, np.nan))[None]


def rate_agreement(row: VerdictRow, labels: Labels) -> float:
    """Return the share of the annotators of a pair who said what the judge said."""
    known = [label for label in labels if label is not None]
    return known.count(str(row.verdict)) / len(known)
