import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from groupwise.evaluation.statistics import (
    CR3,
    Gain,
    assess_gains,
    bound_student,
    find_variance,
    square_sums,
    sum_clusters,
)

Rows = list[tuple[str, float]]


def name_clusters(num_clusters: int, size: int) -> list[str]:
    return [f"g{number:03}" for number in range(num_clusters) for _ in range(size)]


def assess(clusters: list[str], gains: np.ndarray, *, is_binary: bool = False) -> Gain:
    return assess_gains(clusters, gains, is_binary=is_binary, seed=0, num_resamples=1999)


def test_many_alike_clusters_have_the_t_interval() -> None:
    gains = np.random.default_rng(0).normal(0.02, 0.1, size=400)
    found = assess(name_clusters(400, 1), gains)
    wanted = stats.ttest_1samp(gains, 0)
    assert (found.low, found.high) == pytest.approx(tuple(wanted.confidence_interval()), abs=2e-3)
    assert found.p_value == pytest.approx(wanted.pvalue, rel=0.3)


def test_neither_t_with_cr3_nor_the_draws_are_surer() -> None:
    random = np.random.default_rng(2)
    clusters, gains = name_clusters(30, 8), random.choice([-0.5, 0.0, 0.5], 240, p=[0.1, 0.7, 0.2])
    found = assess(clusters, gains)
    sums, sizes = sum_clusters(gains, clusters)
    half = stats.t.ppf(0.975, 29) * np.sqrt(find_variance(sums, sizes, CR3))
    assert found.low <= gains.mean() - half
    assert found.high >= gains.mean() + half
    assert found.num_carrying == pytest.approx(10, abs=6)


def test_draws_are_studentised_as_by_hand() -> None:
    random = np.random.default_rng(4)
    sums, sizes = random.normal(1, 2, 12), random.integers(1, 9, 12).astype(np.float64)
    index = random.integers(12, size=(1999, 12))
    mean, spread = sums.sum() / sizes.sum(), np.sqrt(find_variance(sums, sizes, 0))
    t = []
    for draw in index:
        ratio = sums[draw].sum() / sizes[draw].sum()
        t.append((ratio - mean) / np.sqrt(find_variance(sums[draw], sizes[draw], 0)))
    drawn = square_sums(sums, sizes)[index].sum(axis=1)
    low, high, p_value = bound_student(sums, sizes, drawn)
    assert (low, high) == pytest.approx(
        tuple(mean - np.quantile(t, [0.975, 0.025]) * spread), abs=0.01
    )
    one_side = min(np.mean(t >= mean / spread), np.mean(t <= mean / spread))
    assert p_value == pytest.approx(2 * one_side, abs=2e-3)


def test_skewed_gains_have_a_longer_side() -> None:
    gains = np.random.default_rng(5).lognormal(-3, 1, size=60) - 0.1
    found = assess(name_clusters(60, 1), gains)
    assert found.high - gains.mean() > 1.15 * (gains.mean() - found.low)


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.floats(-1, 1)), min_size=1, max_size=40))
@settings(max_examples=60, deadline=None)
def test_interval_and_p_agree_and_hold_the_mean(rows: Rows) -> None:
    clusters, gains = [name for name, _ in rows], np.asarray([gain for _, gain in rows])
    found = assess(clusters, gains)
    assert -1 <= found.low <= gains.mean() + 1e-12
    assert gains.mean() - 1e-12 <= found.high <= 1
    assert 0 < found.p_value <= 1
    if found.low > 0 or found.high < 0:
        assert found.p_value < 0.05


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.floats(-1, 1)), min_size=2, max_size=40))
@settings(max_examples=40, deadline=None)
def test_exchanged_policies_have_the_turned_interval(rows: Rows) -> None:
    clusters, gains = [name for name, _ in rows], np.asarray([gain for _, gain in rows])
    one, other = assess(clusters, gains), assess(clusters, -gains)
    assert (one.low, one.high) == pytest.approx((-other.high, -other.low))
    assert one.p_value == pytest.approx(other.p_value)


def test_policies_that_agree_everywhere_may_differ_elsewhere() -> None:
    clusters, none = name_clusters(30, 8), np.zeros(240)
    square = stats.t.ppf(0.975, 29) ** 2
    for is_binary in (True, False):
        found = assess(clusters, none, is_binary=is_binary)
        assert (found.low, found.high) == pytest.approx(
            (-square / (30 + square), square / (30 + square))
        )
        assert (found.p_value, found.num_carrying) == (1, None)


def test_clusters_that_all_gain_the_same_are_the_sign_test() -> None:
    found = assess(name_clusters(12, 5), np.ones(60))
    square = stats.t.ppf(0.975, 11) ** 2
    assert (found.low, found.high) == pytest.approx((12 / (12 + square), 1))
    assert found.p_value == pytest.approx(2 / 2**12)
    few = assess(name_clusters(4, 5), np.full(20, 0.2))
    assert few.low < 0 < few.high
    assert few.p_value == 1


def test_single_items_right_or_wrong_have_bonett_and_prices_interval() -> None:
    gains = np.asarray([1.0] * 12 + [-1.0] * 2 + [0.0] * 86)
    more, less = 13 / 102, 3 / 102
    half = stats.norm.ppf(0.975) * np.sqrt((more + less - (more - less) ** 2) / 102)
    found = assess(name_clusters(100, 1), gains, is_binary=True)
    assert (found.low, found.high) == pytest.approx((more - less - half, more - less + half))
    assert found.p_value == pytest.approx(stats.binomtest(2, 14).pvalue)
    assert found.num_carrying is None


def test_draws_without_a_difference_do_not_make_the_interval_endless() -> None:
    # Two of forty clusters differ: an eighth of all draws has neither.
    gains = np.zeros(160)
    gains[[0, 1, 4, 5]] = 1.0
    found = assess(name_clusters(40, 4), gains, is_binary=True)
    assert found.low < 0.025 < found.high < 0.6
    assert found.p_value > 0.05
    assert found.num_carrying == pytest.approx(2, abs=0.3)


def test_one_cluster_proves_nothing() -> None:
    assert assess(["g"] * 9, np.ones(9)) == Gain(-1.0, 1.0, 1.0)


def test_rare_differences_of_single_items_are_held() -> None:
    random, held = np.random.default_rng(3), 0
    clusters, truth = name_clusters(60, 1), 0.016
    for _ in range(300):
        gains = random.choice([-1.0, 0.0, 1.0], size=60, p=[0.002, 0.98, 0.018])
        found = assess(clusters, gains, is_binary=True)
        held += found.low <= truth <= found.high
    assert held > 0.93 * 300
