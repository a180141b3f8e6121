from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from statsmodels.stats.proportion import proportion_confint

from groupwise.evaluation.statistics import (
    CR3,
    bound_ratio,
    clustered_ratio,
    count_carrying,
    count_effective,
    find_alike_df,
    find_cluster_df,
    find_quantile,
    find_sparse_df,
    find_variance,
    sum_clusters,
)

RNG = np.random.default_rng(3)
SIZES = np.array([1.0, 2, 3, 8, 20, 5])
Find = Callable[[np.ndarray], np.ndarray]


@pytest.mark.parametrize(("find", "power"), [(find_cluster_df, 1), (find_alike_df, 2)])
def test_degrees_of_freedom_agree_with_dense_matrices(find: Find, power: int) -> None:
    sizes = np.array([4.0, 2, 3, 8, 7, 5])
    share = sizes / sizes.sum()
    centred = np.eye(6) - np.outer(sizes, np.ones(6)) / sizes.sum()
    spread = centred @ np.diag(sizes**power) @ centred.T
    root = np.diag((1 - share) ** -0.5)
    form = root @ spread @ root
    assert find(sizes) == pytest.approx(np.trace(form) ** 2 / np.trace(form @ form))
    assert find(np.full(7, 4.0)) == pytest.approx(6)


def test_variance_is_near_the_jackknife() -> None:
    sums, sizes = RNG.normal(size=9), np.full(9, 4.0)
    left_out = (sums.sum() - sums) / 32
    jackknife = 8 / 9 * ((left_out - left_out.mean()) ** 2).sum()
    assert find_variance(sums, sizes, CR3) == pytest.approx(jackknife * 9 / 8)


def test_even_clusters_of_one_item_give_the_usual_standard_error() -> None:
    values = RNG.normal(size=(2, 12))
    sums, sizes = sum_clusters(values, list("abcdefghijkl"))
    assert find_variance(sums, sizes) == pytest.approx(values.var(axis=-1, ddof=1) / 12)


def test_sums_are_by_cluster_name_for_every_data_set() -> None:
    sums, sizes = sum_clusters([[1, 2, 4], [0, 1, 1]], ["b", "a", "b"])
    assert sums.tolist() == [[2, 5], [1, 1]]
    assert sizes.tolist() == [1, 2]


def test_quantile_is_of_both_sides() -> None:
    assert find_quantile(4) == pytest.approx(2.776, abs=1e-3)


def test_a_variance_that_few_clusters_carry_has_two_degrees_of_freedom_for_each() -> None:
    sums = np.zeros(1000)
    sums[:3] = 4
    assert find_sparse_df(sums, np.full(1000, 8.0)) == pytest.approx(6, rel=0.02)
    assert count_carrying(sums, np.full(1000, 8.0)) == pytest.approx(3, rel=0.02)


def test_no_cluster_carries_a_variance_that_is_not_there() -> None:
    assert count_carrying(SIZES / 2, SIZES) == 0


def test_effective_clusters_are_kishs() -> None:
    assert count_effective(np.full(7, 4.0)) == pytest.approx(7)
    assert count_effective(np.asarray([9.0, 1.0])) == pytest.approx(100 / 82)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=2, max_size=60))
def test_a_share_of_independent_items_has_wilsons_interval(rows: list[tuple[bool, bool]]) -> None:
    tops = [int(in_base and hit) for in_base, hit in rows]
    bases = [int(in_base) for in_base, _ in rows]
    found = clustered_ratio(tops, bases, [f"g{number}" for number in range(len(rows))])
    if sum(bases) < 2:
        assert found is None
    else:
        wilson = proportion_confint(sum(tops), sum(bases), method="wilson")
        assert found == pytest.approx(wilson, abs=1e-12)


def test_even_clusters_of_alike_items_are_near_wilsons_interval_of_clusters() -> None:
    shares = np.repeat(np.arange(400) % 2, 5)
    found = clustered_ratio(shares, np.ones(2000), [f"g{n // 5:03}" for n in range(2000)])
    assert found == pytest.approx(proportion_confint(200, 400, method="wilson"), abs=2e-3)


@pytest.mark.parametrize("value", [0, 1])
def test_items_all_alike_have_the_interval_of_so_many_clusters(value: int) -> None:
    clusters = [f"g{number // 5:02}" for number in range(100)]
    found = clustered_ratio(np.full(100, value), np.ones(100), clusters)
    square = float(find_quantile(19)) ** 2
    end = square / (20 + square)
    assert found == pytest.approx((0, end) if value == 0 else (1 - end, 1))


def test_one_cluster_in_the_base_tells_nothing() -> None:
    assert clustered_ratio([1, 0], [1, 1], ["a", "a"]) is None
    assert clustered_ratio([1, 0, 0], [1, 1, 0], ["a", "a", "b"]) is None
    assert clustered_ratio([0, 0], [0, 0], ["a", "b"]) is None


@given(
    st.lists(
        st.tuples(st.sampled_from("abcdefgh"), st.floats(0, 1), st.sampled_from([0, 1, 2])),
        min_size=2,
        max_size=60,
    )
)
@example([("a", 1e-17, 1), ("b", 0.0, 1)])
def test_an_interval_has_its_ratio_inside_and_turns_with_what_counts(
    rows: list[tuple[str, float, int]],
) -> None:
    clusters = [cluster for cluster, _, _ in rows]
    bases = np.asarray([base for _, _, base in rows], dtype=float)
    tops = bases * [share for _, share, _ in rows]
    found, turned = (clustered_ratio(part, bases, clusters) for part in (tops, bases - tops))
    if found is None or turned is None:
        assert len({c for c, base in zip(clusters, bases, strict=True) if base}) < 2
        return
    assert 0 <= found[0] <= tops.sum() / bases.sum() <= found[1] <= 1
    assert found == pytest.approx((1 - turned[1], 1 - turned[0]), abs=1e-6)


@pytest.mark.parametrize("num_clusters", [15, 40])
@pytest.mark.parametrize("share", [0.02, 0.86])
def test_shares_of_unlike_clusters_are_held(num_clusters: int, share: float) -> None:
    random = np.random.default_rng(num_clusters)
    sizes = random.integers(1, 31, (2000, num_clusters)).astype(np.float64)
    shares = random.beta(share * 7 / 3, (1 - share) * 7 / 3, sizes.shape)
    tops = random.binomial(sizes.astype(int), shares).astype(np.float64)
    low, high = bound_ratio(tops, sizes, is_binary=True)
    assert ((low <= share) & (share <= high)).mean() > 0.915
