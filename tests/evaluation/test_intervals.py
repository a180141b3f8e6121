import itertools
from collections import Counter

import numpy as np
import pytest
from scipy import stats

from groupwise.evaluation.statistics import (
    bound_clustered,
    count_effective_items,
    draw_sums,
    find_tail,
    widen_certain,
)

QUANTILES = (0.005, 0.025, 0.25, 0.5, 0.75, 0.975, 0.995)


def divide_sums(sums: np.ndarray) -> np.ndarray:
    """Means of sums whose last axis is a sum and a count."""
    return (sums[..., 0] / sums[..., 1])[None]


def draw_with_scipy(sums: np.ndarray, num_draws: int) -> np.ndarray:
    """The same statistic of the same clusters by scipy, drawing their numbers."""

    def score(drawn: np.ndarray, axis: int) -> np.ndarray:
        total = sums[drawn].sum(axis=axis - 1)
        return total[..., 0] / total[..., 1]

    index = (np.arange(len(sums)),)
    return stats.bootstrap(
        index, score, n_resamples=num_draws, vectorized=True, method="percentile", rng=1
    ).bootstrap_distribution


@pytest.mark.parametrize("num_kinds", [3, 1000], ids=["equal clusters together", "one by one"])
def test_draws_have_the_law_of_scipys_bootstrap(num_kinds: int) -> None:
    random = np.random.default_rng(0)
    kinds = np.column_stack([random.normal(1, 2, num_kinds), random.integers(1, 6, num_kinds)])
    sums = kinds[random.integers(num_kinds, size=40)]
    ours = divide_sums(draw_sums(sums, seed=0, num_resamples=40_000))[0]
    theirs = draw_with_scipy(sums, 40_000)
    spread = theirs.std()
    assert np.quantile(ours, QUANTILES) == pytest.approx(
        np.quantile(theirs, QUANTILES), abs=0.05 * spread
    )
    # Sums of few kinds repeat; rounding makes repeats equal in both.
    assert stats.ks_2samp(ours.round(9), theirs.round(9)).pvalue > 0.001


@pytest.mark.parametrize("copies", [1, 9], ids=["one by one", "equal clusters together"])
def test_draws_have_the_chances_of_all_possible_draws(copies: int) -> None:
    # Three clusters drawn three times: 27 equally likely draws. Copies of one row stand for the
    # other way to draw, of which only the number of ones counts.
    values = [0.0, 1.0, 10.0] if copies == 1 else [0.0] * copies + [1.0] * copies
    size = len(values)
    found = Counter(draw_sums(np.asarray(values)[:, None], seed=0, num_resamples=60_000)[:, 0])
    if copies == 1:
        every = Counter(sum(one) for one in itertools.product(values, repeat=size))
        expected = {total: count / size**size for total, count in every.items()}
    else:
        expected = {float(k): stats.binom.pmf(k, size, 0.5) for k in range(size + 1)}
    assert set(found) <= set(expected)
    counts = [found[total] for total in expected]
    chances = np.asarray(list(expected.values()))
    enough = chances * 60_000 > 5
    observed = np.append(np.asarray(counts)[enough], np.asarray(counts)[~enough].sum() + 1e-9)
    wanted = np.append(chances[enough], chances[~enough].sum() + 1e-12) * 60_000
    square = ((observed - wanted) ** 2 / np.maximum(wanted, 1)).sum()
    assert stats.chi2.sf(square, enough.sum() - 1) > 0.001


def test_columns_of_a_draw_belong_together() -> None:
    sums = np.column_stack([np.arange(50.0), 2 * np.arange(50.0)])
    drawn = draw_sums(sums, seed=0, num_resamples=200)
    assert drawn[:, 1] == pytest.approx(2 * drawn[:, 0])
    assert drawn[:, 0].std() > 10


def test_draws_repeat_with_their_seed_and_come_in_any_number() -> None:
    sums = np.random.default_rng(0).normal(size=(700, 2))
    assert draw_sums(sums, seed=1, num_resamples=801).shape == (801, 2)
    one, two = (draw_sums(sums, seed=seed, num_resamples=400) for seed in (1, 2))
    assert (one == draw_sums(sums, seed=1, num_resamples=400)).all()
    assert (one != two).any()


def test_tail_makes_the_interval_of_a_mean_that_of_the_t_test() -> None:
    # Draws of a mean of n values spread by s * sqrt((n - 1) / n) / sqrt(n); t takes s / sqrt(n).
    values = np.random.default_rng(0).normal(size=12)
    error = values.std(ddof=1) / np.sqrt(12)
    half = -stats.norm.ppf(find_tail(12)) * error * np.sqrt(11 / 12)
    low, high = stats.ttest_1samp(values, 0).confidence_interval()
    assert half == pytest.approx((high - low) / 2)
    assert find_tail(1e6) == pytest.approx(0.025, abs=1e-5)
    assert find_tail(1.0) == 0.0


def test_interval_of_a_mean_is_near_the_t_interval() -> None:
    values = np.random.default_rng(3).normal(0.5, 0.2, size=20)
    cells = np.column_stack([values, np.ones(20)])
    clusters = [f"g{n}" for n in range(20)]
    ((low, high),) = bound_clustered(clusters, cells, divide_sums, seed=0, num_resamples=20_000)
    expected = stats.ttest_1samp(values, 0).confidence_interval()
    assert (low, high) == pytest.approx(tuple(expected), abs=0.012)


def test_one_giant_cluster_among_small_ones_gives_no_narrow_interval() -> None:
    clusters = ["giant"] * 1000 + [f"g{n}" for n in range(12)]
    cells = np.column_stack([[1.0] * 1000 + [0.0] * 12, np.ones(1012)])
    ((low, high),) = bound_clustered(clusters, cells, divide_sums, seed=0, num_resamples=10_000)
    assert low == 0
    assert high > 0.998


def test_all_items_alike_have_an_interval_without_width() -> None:
    cells = np.column_stack([np.full(30, 0.3), np.ones(30)])
    ((low, high),) = bound_clustered([f"g{n % 10}" for n in range(30)], cells, divide_sums, seed=0)
    assert (low, high) == pytest.approx((0.3, 0.3))


def name_clusters(num_clusters: int, size: int) -> list[str]:
    return [f"g{number:03}" for number in range(num_clusters) for _ in range(size)]


def test_effective_items_are_those_of_the_design_effect() -> None:
    random = np.random.default_rng(1)
    clusters = name_clusters(4000, 10)
    # 1 + (10 - 1) * icc, where a cluster shares one draw of a beta distribution of that correlation
    shares = np.repeat(random.beta(0.3 * 7 / 3, 0.7 * 7 / 3, size=4000), 10)
    values = (random.random(40_000) < shares).astype(np.float64)
    found = count_effective_items(clusters, values)
    assert found == pytest.approx(40_000 / (1 + 9 * 0.3), rel=0.05)


def test_other_shares_are_widened_only_where_no_draw_differs() -> None:
    clusters = tuple(name_clusters(30, 8))
    assert widen_certain((0.2, 0.8), 0.5, clusters) == (0.2, 0.8)
    assert widen_certain((0.5, 0.5), 0.5, clusters) == (0.5, 0.5)
    low, high = widen_certain((1.0, 1.0), 1.0, clusters)
    assert (low, high) == pytest.approx((30 / (30 + stats.t.ppf(0.975, 29) ** 2), 1.0))
