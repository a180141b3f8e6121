"""Statistics of items in clusters, held to references, hand-made cases and simulations."""

import itertools
from collections import Counter
from dataclasses import dataclass
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_confint

from groupwise.evaluation.statistics import (
    CR3,
    EXACT_BELOW,
    Gain,
    adjust_holm,
    assess_gains,
    bound_clustered,
    bound_gain,
    bound_ratio,
    clustered_ratio,
    count_carrying,
    count_effective,
    count_effective_items,
    draw_sums,
    find_alike_df,
    find_cluster_df,
    find_quantile,
    find_sparse_df,
    find_tail,
    find_variance,
    score_mcnemar,
    square_sums,
    sum_clusters,
    widen_balanced,
)

RNG = np.random.default_rng(3)


def name_clusters(num_clusters: int, size: int = 1) -> list[str]:
    return [f"g{number:04}" for number in range(num_clusters) for _ in range(size)]


def assess(clusters: list[str], gains: np.ndarray, *, is_binary: bool = False) -> Gain:
    return assess_gains(clusters, gains, is_binary=is_binary, seed=0, num_resamples=1999)


@pytest.mark.parametrize(("find", "power"), [(find_cluster_df, 1), (find_alike_df, 2)])
def test_degrees_of_freedom_agree_with_dense_matrices(find, power):
    sizes = np.array([4.0, 2, 3, 8, 7, 5])
    share = sizes / sizes.sum()
    centred = np.eye(6) - np.outer(sizes, np.ones(6)) / sizes.sum()
    spread = centred @ np.diag(sizes**power) @ centred.T
    root = np.diag((1 - share) ** -0.5)
    form = root @ spread @ root
    assert find(sizes) == pytest.approx(np.trace(form) ** 2 / np.trace(form @ form))
    assert find(np.full(7, 4.0)) == pytest.approx(6)


def test_variance_is_near_the_jackknife():
    sums, sizes = RNG.normal(size=9), np.full(9, 4.0)
    left_out = (sums.sum() - sums) / 32
    jackknife = 8 / 9 * ((left_out - left_out.mean()) ** 2).sum()
    assert find_variance(sums, sizes, CR3) == pytest.approx(jackknife * 9 / 8)


def test_even_clusters_of_one_item_give_the_usual_standard_error():
    values = RNG.normal(size=(2, 12))
    sums, sizes = sum_clusters(values, name_clusters(12))
    assert find_variance(sums, sizes) == pytest.approx(values.var(axis=-1, ddof=1) / 12)


def test_sums_are_by_cluster_name_for_every_data_set():
    sums, sizes = sum_clusters([[1, 2, 4], [0, 1, 1]], ["b", "a", "b"])
    assert sums.tolist() == [[2, 5], [1, 1]]
    assert sizes.tolist() == [1, 2]


def test_quantile_is_of_both_sides():
    assert find_quantile(4) == pytest.approx(2.776, abs=1e-3)


def test_a_variance_that_few_clusters_carry_has_two_degrees_of_freedom_for_each():
    sums, sizes = np.zeros(1000), np.full(1000, 8.0)
    sums[:3] = 4
    assert find_sparse_df(sums, sizes) == pytest.approx(6, rel=0.02)
    assert count_carrying(sums, sizes) == pytest.approx(3, rel=0.02)
    uneven = np.array([1.0, 2, 3, 8, 20, 5])
    assert count_carrying(uneven / 2, uneven) == 0


def test_effective_clusters_are_kishs():
    assert count_effective(np.full(7, 4.0)) == pytest.approx(7)
    assert count_effective(np.asarray([9.0, 1.0])) == pytest.approx(100 / 82)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=2, max_size=60))
def test_a_share_of_independent_items_has_wilsons_interval(rows):
    tops = [int(in_base and hit) for in_base, hit in rows]
    bases = [int(in_base) for in_base, _ in rows]
    found = clustered_ratio(tops, bases, name_clusters(len(rows)))
    if sum(bases) < 2:
        assert found is None
    else:
        wilson = proportion_confint(sum(tops), sum(bases), method="wilson")
        assert found == pytest.approx(wilson, abs=1e-12)


def test_even_clusters_of_alike_items_are_near_wilsons_interval_of_clusters():
    shares = np.repeat(np.arange(400) % 2, 5)
    found = clustered_ratio(shares, np.ones(2000), name_clusters(400, 5))
    assert found == pytest.approx(proportion_confint(200, 400, method="wilson"), abs=2e-3)


@pytest.mark.parametrize("value", [0, 1])
def test_items_all_alike_have_the_interval_of_so_many_clusters(value):
    found = clustered_ratio(np.full(100, value), np.ones(100), name_clusters(20, 5))
    square = float(find_quantile(19)) ** 2
    end = square / (20 + square)
    assert found == pytest.approx((0, end) if value == 0 else (1 - end, 1))


def test_one_cluster_in_the_base_tells_nothing():
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
def test_an_interval_has_its_ratio_inside_and_turns_with_what_counts(rows):
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
def test_shares_of_unlike_clusters_are_held(num_clusters, share):
    random = np.random.default_rng(num_clusters)
    sizes = random.integers(1, 31, (2000, num_clusters)).astype(np.float64)
    shares = random.beta(share * 7 / 3, (1 - share) * 7 / 3, sizes.shape)
    tops = random.binomial(sizes.astype(int), shares).astype(np.float64)
    low, high = bound_ratio(tops, sizes, is_binary=True)
    assert ((low <= share) & (share <= high)).mean() > 0.915


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
def test_draws_have_the_law_of_scipys_bootstrap(num_kinds):
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
def test_draws_have_the_chances_of_all_possible_draws(copies):
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


def test_columns_of_a_draw_belong_together():
    sums = np.column_stack([np.arange(50.0), 2 * np.arange(50.0)])
    drawn = draw_sums(sums, seed=0, num_resamples=200)
    assert drawn[:, 1] == pytest.approx(2 * drawn[:, 0])
    assert drawn[:, 0].std() > 10


def test_draws_repeat_with_their_seed_and_come_in_any_number():
    sums = np.random.default_rng(0).normal(size=(700, 2))
    assert draw_sums(sums, seed=1, num_resamples=801).shape == (801, 2)
    one, two = (draw_sums(sums, seed=seed, num_resamples=400) for seed in (1, 2))
    assert (one == draw_sums(sums, seed=1, num_resamples=400)).all()
    assert (one != two).any()


def test_tail_makes_the_interval_of_a_mean_that_of_the_t_test():
    # Draws of a mean of n values spread by s * sqrt((n - 1) / n) / sqrt(n); t takes s / sqrt(n).
    values = np.random.default_rng(0).normal(size=12)
    error = values.std(ddof=1) / np.sqrt(12)
    half = -stats.norm.ppf(find_tail(12)) * error * np.sqrt(11 / 12)
    low, high = stats.ttest_1samp(values, 0).confidence_interval()
    assert half == pytest.approx((high - low) / 2)
    assert find_tail(1e6) == pytest.approx(0.025, abs=1e-5)
    assert find_tail(1.0) == 0.0


def test_interval_of_a_mean_is_near_the_t_interval():
    values = np.random.default_rng(3).normal(0.5, 0.2, size=20)
    cells = np.column_stack([values, np.ones(20)])
    ((low, high),) = bound_clustered(
        name_clusters(20), cells, divide_sums, seed=0, num_resamples=20_000
    )
    expected = stats.ttest_1samp(values, 0).confidence_interval()
    assert (low, high) == pytest.approx(tuple(expected), abs=0.012)


def test_one_giant_cluster_among_small_ones_gives_no_narrow_interval():
    clusters = ["giant"] * 1000 + name_clusters(12)
    cells = np.column_stack([[1.0] * 1000 + [0.0] * 12, np.ones(1012)])
    ((low, high),) = bound_clustered(clusters, cells, divide_sums, seed=0, num_resamples=10_000)
    assert low == 0
    assert high > 0.998


def test_all_items_alike_have_an_interval_without_width():
    cells = np.column_stack([np.full(30, 0.3), np.ones(30)])
    ((low, high),) = bound_clustered(name_clusters(10) * 3, cells, divide_sums, seed=0)
    assert (low, high) == pytest.approx((0.3, 0.3))


def test_effective_items_are_those_of_the_design_effect():
    random = np.random.default_rng(1)
    values = random.normal(size=200)
    clusters = name_clusters(200)
    assert count_effective_items(clusters, values) == pytest.approx(199)
    # Five copies of each item are one: 200 of 199 freedoms and 1,000 of 999.
    copied = count_effective_items(clusters * 5, np.tile(values, 5))
    assert copied == pytest.approx(199)
    # 1 + (m - 1) * icc, where items of a cluster share one draw, normal or of a beta distribution
    shared, own = random.normal(size=(3000, 1)), random.normal(size=(3000, 6))
    several = (np.sqrt(0.4) * shared + np.sqrt(0.6) * own).ravel()
    assert count_effective_items(name_clusters(3000, 6), several) == pytest.approx(6000, rel=0.05)
    shares = np.repeat(random.beta(0.3 * 7 / 3, 0.7 * 7 / 3, size=4000), 10)
    right = (random.random(40_000) < shares).astype(np.float64)
    found = count_effective_items(name_clusters(4000, 10), right)
    assert found == pytest.approx(40_000 / (1 + 9 * 0.3), rel=0.05)
    # Alike, or of one cluster: how far items resemble is not known.
    assert count_effective_items(name_clusters(3, 5), np.ones(15)) == pytest.approx(3)
    assert count_effective_items(["g", "g"], np.asarray([0.0, 1.0])) == 1


def test_intervals_by_draws_are_widened_only_where_no_draw_differs():
    clusters = name_clusters(30, 8)
    assert widen_balanced((0.2, 0.8), 0.5, clusters) == (0.2, 0.8)
    assert widen_balanced((0.5, 0.5), 0.5, clusters) == (0.5, 0.5)
    low, high = widen_balanced((1.0, 1.0), 1.0, clusters)
    assert (low, high) == pytest.approx((30 / (30 + stats.t.ppf(0.975, 29) ** 2), 1.0))


def test_many_alike_clusters_have_the_t_interval():
    gains = np.random.default_rng(0).normal(0.02, 0.1, size=400)
    found = assess(name_clusters(400), gains)
    wanted = stats.ttest_1samp(gains, 0)
    assert (found.low, found.high) == pytest.approx(tuple(wanted.confidence_interval()), abs=2e-3)
    assert found.p_value == pytest.approx(wanted.pvalue, rel=0.3)


def test_neither_t_with_cr3_nor_the_draws_are_surer():
    random = np.random.default_rng(2)
    clusters, gains = name_clusters(30, 8), random.choice([-0.5, 0.0, 0.5], 240, p=[0.1, 0.7, 0.2])
    found = assess(clusters, gains)
    sums, sizes = sum_clusters(gains, clusters)
    half = stats.t.ppf(0.975, 29) * np.sqrt(find_variance(sums, sizes, CR3))
    assert found.low <= gains.mean() - half
    assert found.high >= gains.mean() + half
    assert found.num_carrying == pytest.approx(10, abs=6)


def test_draws_are_studentised_as_by_hand():
    random = np.random.default_rng(4)
    sums, sizes = random.lognormal(0, 1, 12) - 0.5, random.integers(1, 9, 12).astype(np.float64)
    index = random.integers(12, size=(1999, 12))
    mean, spread = sums.sum() / sizes.sum(), np.sqrt(find_variance(sums, sizes, 0))
    t = []
    for draw in index:
        ratio = sums[draw].sum() / sizes[draw].sum()
        t.append((ratio - mean) / np.sqrt(find_variance(sums[draw], sizes[draw], 0)))
    low, high, p_value = bound_gain(sums, sizes, square_sums(sums, sizes)[index].sum(axis=1))
    ends = mean - np.quantile(t, [0.975, 0.025]) * spread
    robust, df = np.sqrt(find_variance(sums, sizes, CR3)), find_alike_df(sizes)
    half = stats.t.ppf(0.975, df) * robust
    # Each end is that of the more careful one of the two; skewed gains need both.
    assert (ends < [mean - half, mean + half]).tolist() in ([True, True], [False, False])
    assert low == pytest.approx(min(ends[0], mean - half), abs=0.01)
    assert high == pytest.approx(max(ends[1], mean + half), abs=0.02)
    one_side = min(np.mean(t >= mean / spread), np.mean(t <= mean / spread))
    p_t = 2 * stats.t.sf(abs(mean) / robust, df)
    assert p_value == pytest.approx(max(2 * one_side, p_t), abs=2e-3)


def test_skewed_gains_have_a_longer_side():
    gains = np.random.default_rng(5).lognormal(-3, 1, size=60) - 0.1
    found = assess(name_clusters(60), gains)
    assert found.high - gains.mean() > 1.15 * (gains.mean() - found.low)


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.floats(-1, 1)), min_size=1, max_size=40))
@settings(max_examples=60, deadline=None)
def test_interval_and_p_agree_and_hold_the_mean(rows):
    clusters, gains = [name for name, _ in rows], np.asarray([gain for _, gain in rows])
    found = assess(clusters, gains)
    assert -1 <= found.low <= gains.mean() + 1e-12
    assert gains.mean() - 1e-12 <= found.high <= 1
    assert 0 < found.p_value <= 1
    if found.low > 0 or found.high < 0:
        assert found.p_value < 0.05


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.floats(-1, 1)), min_size=2, max_size=40))
@settings(max_examples=40, deadline=None)
def test_exchanged_policies_have_the_turned_interval(rows):
    clusters, gains = [name for name, _ in rows], np.asarray([gain for _, gain in rows])
    one, other = assess(clusters, gains), assess(clusters, -gains)
    assert (one.low, one.high) == pytest.approx((-other.high, -other.low))
    assert one.p_value == pytest.approx(other.p_value)


def test_policies_that_agree_everywhere_may_differ_elsewhere():
    clusters, none = name_clusters(30, 8), np.zeros(240)
    square = stats.t.ppf(0.975, 29) ** 2
    for is_binary in (True, False):
        found = assess(clusters, none, is_binary=is_binary)
        assert (found.low, found.high) == pytest.approx(
            (-square / (30 + square), square / (30 + square))
        )
        assert (found.p_value, found.num_carrying) == (1, None)


def test_clusters_that_all_gain_the_same_are_the_sign_test():
    found = assess(name_clusters(12, 5), np.ones(60))
    square = stats.t.ppf(0.975, 11) ** 2
    assert (found.low, found.high) == pytest.approx((12 / (12 + square), 1))
    assert found.p_value == pytest.approx(2 / 2**12)
    few = assess(name_clusters(4, 5), np.full(20, 0.2))
    assert few.low < 0 < few.high
    assert few.p_value == 1


def test_single_items_right_or_wrong_have_bonett_and_prices_interval():
    gains = np.asarray([1.0] * 12 + [-1.0] * 2 + [0.0] * 86)
    more, less = 13 / 102, 3 / 102
    half = stats.norm.ppf(0.975) * np.sqrt((more + less - (more - less) ** 2) / 102)
    found = assess(name_clusters(100), gains, is_binary=True)
    assert (found.low, found.high) == pytest.approx((more - less - half, more - less + half))
    assert found.p_value == pytest.approx(stats.binomtest(2, 14).pvalue)
    assert found.num_carrying is None


def test_draws_without_a_difference_do_not_make_the_interval_endless():
    # Two of forty clusters differ: an eighth of all draws has neither.
    gains = np.zeros(160)
    gains[[0, 1, 4, 5]] = 1.0
    found = assess(name_clusters(40, 4), gains, is_binary=True)
    assert found.low < 0.025 < found.high < 0.6
    assert found.p_value > 0.05
    assert found.num_carrying == pytest.approx(2, abs=0.3)


def test_one_cluster_proves_nothing():
    assert assess(["g"] * 9, np.ones(9)) == Gain(-1.0, 1.0, 1.0)


def test_rare_differences_of_single_items_are_held():
    random, held = np.random.default_rng(3), 0
    clusters, truth = name_clusters(60), 0.016
    for _ in range(300):
        gains = random.choice([-1.0, 0.0, 1.0], size=60, p=[0.002, 0.98, 0.018])
        found = assess(clusters, gains, is_binary=True)
        held += found.low <= truth <= found.high
    assert held > 0.93 * 300


@pytest.mark.parametrize("num_a", [0, 3, 12, 40])
@pytest.mark.parametrize("num_b", [0, 9, 12, 60])
def test_mcnemar_is_the_binomial_or_the_corrected_square(num_a, num_b):
    total = num_a + num_b
    if total < EXACT_BELOW:
        expected = stats.binomtest(num_a, total).pvalue if total else 1.0
    else:
        expected = stats.chi2.sf((abs(num_a - num_b) - 1) ** 2 / total, 1) if total else 1.0
    assert score_mcnemar(num_a, num_b) == pytest.approx(expected)
    table = [[100, num_a], [num_b, 7]]
    reference = mcnemar(table, exact=total < EXACT_BELOW).pvalue
    assert score_mcnemar(num_a, num_b) == pytest.approx(reference)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_is_that_of_statsmodels(p_values):
    with patch("gc.collect"):
        expected = multipletests(p_values, method="holm")[1]
    assert adjust_holm(p_values) == list(expected)
    assert adjust_holm([]) == []


NUM_TRIALS, NUM_CLUSTERS, CORRELATION, SHIFT = 1000, 60, 0.4, 0.5
TRIAL_SIZES = np.resize([2, 4, 7, 12], NUM_CLUSTERS)
CODES = np.repeat(np.arange(NUM_CLUSTERS), TRIAL_SIZES)


@dataclass
class Trials:
    """Values (trials, items, 2) of two policies, with and without a difference."""

    is_binary: bool
    truth: float
    unlike: np.ndarray
    alike: np.ndarray

    def assess(self, values: np.ndarray) -> Gain:
        gains, names = values[:, 1] - values[:, 0], CODES.astype(str).tolist()
        return assess_gains(names, gains, is_binary=self.is_binary, seed=0, num_resamples=399)


@pytest.fixture(scope="module", params=["binary", "continuous"])
def trials(request: pytest.FixtureRequest) -> Trials:
    random = np.random.default_rng(11)
    shape = (NUM_TRIALS, NUM_CLUSTERS)
    latent = random.normal(size=(*shape, 1))[:, CODES] + random.normal(
        size=(NUM_TRIALS, len(CODES), 1)
    )
    latent = latent + np.sqrt(CORRELATION) * random.normal(size=(*shape, 2))[:, CODES]
    latent += np.sqrt(1 - CORRELATION) * random.normal(size=(NUM_TRIALS, len(CODES), 2))
    shifted = latent + np.asarray([0, SHIFT])
    if request.param == "binary":
        # P(latent + shift > 0) with a variance of 3.
        truth = stats.norm.cdf(SHIFT / np.sqrt(3)) - 0.5
        return Trials(True, truth, (shifted > 0).astype(float), (latent > 0).astype(float))
    # E[cdf(latent + shift)] with a variance of 3.
    truth = stats.norm.cdf(SHIFT / 2) - 0.5
    return Trials(False, truth, stats.norm.cdf(shifted), stats.norm.cdf(latent))


def count_held(low: np.ndarray, high: np.ndarray, truth: float) -> float:
    return float(np.mean((low <= truth) & (truth <= high)))


def test_clustered_paired_intervals_hold_the_truth(trials):
    found = [trials.assess(values) for values in trials.unlike]
    low, high = np.asarray([(one.low, one.high) for one in found]).T
    assert 0.93 <= count_held(low, high, trials.truth) <= 0.98


def test_tests_by_clusters_raise_few_false_alarms(trials):
    alarms = [trials.assess(values).p_value < 0.05 for values in trials.alike]
    assert 0.02 <= np.mean(alarms) <= 0.07


def test_items_taken_as_independent_fail(trials):
    unlike = trials.unlike[..., 1] - trials.unlike[..., 0]
    intervals = stats.ttest_1samp(unlike, 0, axis=1).confidence_interval()
    assert count_held(*intervals, trials.truth) < 0.85
    alarms = stats.ttest_rel(trials.alike[..., 1], trials.alike[..., 0], axis=1).pvalue < 0.05
    assert alarms.mean() > 0.14


def test_policies_taken_as_unpaired_fail(trials):
    firsts = np.flatnonzero(np.diff(CODES, prepend=-1))
    unlike, alike = (
        np.add.reduceat(values, firsts, axis=1) / TRIAL_SIZES[:, None]
        for values in (trials.unlike, trials.alike)
    )
    intervals = stats.ttest_ind(unlike[..., 1], unlike[..., 0], axis=1).confidence_interval()
    assert count_held(*intervals, trials.truth) > 0.98
    alarms = stats.ttest_ind(alike[..., 1], alike[..., 0], axis=1).pvalue < 0.05
    assert alarms.mean() < 0.02
