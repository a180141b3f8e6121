import numpy as np
import pytest

from groupwise.evaluation.clusters import (
    CR3,
    find_cluster_df,
    find_quantile,
    find_variance,
    sum_clusters,
)

RNG = np.random.default_rng(3)
SIZES = np.array([1.0, 2, 3, 8, 20, 5])


def test_degrees_of_freedom_agree_with_dense_matrices():
    share = SIZES / SIZES.sum()
    centred = np.eye(6) - np.outer(SIZES, np.ones(6)) / SIZES.sum()
    root = np.diag((1 - share) ** -0.5)
    form = root @ centred @ np.diag(SIZES) @ centred.T @ root
    want = np.trace(form) ** 2 / np.trace(form @ form)
    assert find_cluster_df(SIZES) == pytest.approx(want)
    assert find_cluster_df(np.full(7, 4.0)) == pytest.approx(6)


def test_variance_is_near_the_jackknife():
    sums, sizes = RNG.normal(size=9), np.full(9, 4.0)
    left_out = (sums.sum() - sums) / 32
    jackknife = 8 / 9 * ((left_out - left_out.mean()) ** 2).sum()
    assert find_variance(sums, sizes, CR3) == pytest.approx(jackknife * 9 / 8)


def test_even_clusters_of_one_item_give_the_usual_standard_error():
    values = RNG.normal(size=(2, 12))
    sums, sizes = sum_clusters(values, list("abcdefghijkl"))
    assert find_variance(sums, sizes) == pytest.approx(values.var(axis=-1, ddof=1) / 12)


def test_sums_are_by_cluster_name_for_every_data_set():
    sums, sizes = sum_clusters([[1, 2, 4], [0, 1, 1]], ["b", "a", "b"])
    assert sums.tolist() == [[2, 5], [1, 1]]
    assert sizes.tolist() == [1, 2]


def test_quantile_is_of_both_sides():
    assert find_quantile(4) == pytest.approx(2.776, abs=1e-3)
