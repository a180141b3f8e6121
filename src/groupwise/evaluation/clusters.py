"""Means of items in clusters drawn at random: variance, degrees of freedom, quantile.

In shapes ``...`` is any number of data sets, n items and G clusters.

Source: Bell & McCaffrey 2002, "Bias reduction in standard errors for linear regression with
multi-stage samples", for a model with only an intercept.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from groupwise.evaluation.untyped import find_t_quantile

LEVEL = 0.95
CR2, CR3 = 1, 2
Floats = NDArray[np.float64]


def sum_clusters(values: ArrayLike, clusters: Sequence[object]) -> tuple[Floats, Floats]:
    """Return sums (..., G) of values (..., n) by cluster and the clusters' sizes (G,), by name."""
    array = np.asarray(values, dtype=np.float64)
    _, codes = np.unique(np.asarray(clusters).astype(str), return_inverse=True)
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    sizes = np.diff(starts, append=len(codes)).astype(np.float64)
    return np.add.reduceat(array[..., order], starts, axis=-1), sizes


def find_mean(sums: Floats, sizes: Floats) -> Floats:
    """Return means (...) of items from sums (..., G) and sizes (..., G) of clusters."""
    return sums.sum(axis=-1) / sizes.sum(axis=-1)


def find_variance(sums: Floats, sizes: Floats, adjustment: int = CR2) -> Floats:
    """Return the variance (...) of ``find_mean`` when clusters are drawn at random, >= 0.

    With h the cluster's share of the items and e its residual sum, the sum over clusters of
    e^2 / (1 - h)^a over n^2, where a is 1 (CR2) or 2 (CR3, close to the jackknife).

    Args:
        sums: (..., G) sums by cluster.
        sizes: (..., G) items by cluster; two or more clusters with items.
        adjustment: ``CR2`` or ``CR3``; 0 for no correction.

    Source: Bell & McCaffrey 2002, equations 5 and 6.
    """
    total = sizes.sum(axis=-1, keepdims=True)
    residuals = sums - find_mean(sums, sizes)[..., None] * sizes
    terms = residuals**2 / (1 - sizes / total) ** adjustment
    return terms.sum(axis=-1) / total[..., 0] ** 2


def find_cluster_df(sizes: Floats) -> Floats:
    """Return the degrees of freedom (...) of ``find_variance``: G - 1 where sizes (..., G) agree.

    tr(B)^2 / tr(B B) of the quadratic form B that the variance is, where items are independent.

    Source: Bell & McCaffrey 2002, equation 10, with the sum over pairs of clusters expanded.
    """
    share = sizes / sizes.sum(axis=-1, keepdims=True)
    cross = share * sizes / (1 - share)
    squared = cross.sum(axis=-1) ** 2 - (cross**2).sum(axis=-1)
    return sizes.sum(axis=-1) ** 2 / (squared + (sizes**2).sum(axis=-1))


def find_quantile(df: ArrayLike, level: float = LEVEL) -> Floats:
    """Return the two-sided quantile of Student's t with ``df`` (...) degrees of freedom."""
    return np.asarray(find_t_quantile(df, (1 + level) / 2))
