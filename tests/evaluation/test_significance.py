from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestPower

from groupwise.evaluation.statistics import (
    EXACT_BELOW,
    adjust_holm,
    count_items_needed,
    measure_design_effect,
    measure_effect,
    score_mcnemar,
)


@pytest.mark.parametrize("num_a", [0, 3, 12, 40])
@pytest.mark.parametrize("num_b", [0, 9, 12, 60])
def test_mcnemar_is_the_binomial_or_the_corrected_square(num_a: int, num_b: int) -> None:
    total = num_a + num_b
    if total < EXACT_BELOW:
        expected = stats.binomtest(num_a, total).pvalue if total else 1.0
    else:
        expected = stats.chi2.sf((abs(num_a - num_b) - 1) ** 2 / total, 1) if total else 1.0
    assert score_mcnemar(num_a, num_b) == pytest.approx(expected)
    table = [[100, num_a], [num_b, 7]]
    reference = mcnemar(table, exact=total < EXACT_BELOW).pvalue
    assert score_mcnemar(num_a, num_b) == pytest.approx(reference)


def test_effect_is_mean_over_deviation() -> None:
    gains = np.asarray([1.0, 0.0, 0.0, -1.0, 1.0])
    # The t statistic of the differences is the effect times the root of n.
    t = stats.ttest_1samp(gains, 0).statistic
    assert measure_effect(gains) == pytest.approx(t / np.sqrt(5))
    assert measure_effect(np.asarray([1.0, -1.0])) == 0


@pytest.mark.parametrize("gains", [[0.0] * 5, [1.0] * 5, [0.1 + 0.2, 0.3], [1.0]])
def test_differences_without_spread_have_no_effect(gains: list[float]) -> None:
    assert measure_effect(np.asarray(gains)) is None
    assert measure_design_effect([str(n) for n in range(len(gains))], np.asarray(gains)) is None


def test_design_effect_of_items_alone_is_one() -> None:
    gains = np.random.default_rng(0).normal(size=50)
    assert measure_design_effect([f"g{n}" for n in range(50)], gains) == pytest.approx(1)


def test_design_effect_of_copies_is_their_number() -> None:
    gains = np.random.default_rng(0).normal(size=200)
    clusters = [f"g{n:03}" for n in range(200)]
    copied = measure_design_effect(clusters * 5, np.tile(gains, 5))
    assert copied == pytest.approx(5, rel=0.02)


def test_design_effect_is_one_plus_the_correlation_of_the_others() -> None:
    # Kish: 1 + (m - 1) * icc, with m = 6 and icc = 0.4.
    random = np.random.default_rng(1)
    gains = np.sqrt(0.4) * random.normal(size=(3000, 1)) + np.sqrt(0.6) * random.normal(
        size=(3000, 6)
    )
    clusters = np.repeat(np.arange(3000), 6).astype(str).tolist()
    assert measure_design_effect(clusters, gains.ravel()) == pytest.approx(3, rel=0.05)


def test_design_effect_of_one_cluster_is_not_known() -> None:
    assert measure_design_effect(["g", "g"], np.asarray([0.0, 1.0])) is None


@pytest.mark.parametrize("effect", [0.05, -0.2, 0.5, 1.3])
def test_items_needed_have_the_power(effect: float) -> None:
    num_items = count_items_needed(effect, 1.0)
    assert num_items is not None
    power = TTestPower().power
    assert power(abs(effect), num_items, 0.05) >= 0.8 > power(abs(effect), num_items - 1, 0.05)


def test_items_needed_show_the_difference_in_four_of_five_trials() -> None:
    num_items = count_items_needed(0.3, 1.0)
    draws = np.random.default_rng(0).normal(0.3, 1, size=(4000, num_items))
    found = stats.ttest_1samp(draws, 0, axis=1).pvalue < 0.05
    assert found.mean() == pytest.approx(0.8, abs=0.02)


def test_items_needed_grow_with_the_design_effect_and_never_shrink() -> None:
    alone = count_items_needed(0.2, None)
    assert alone == count_items_needed(0.2, 0.5) == 199
    assert count_items_needed(0.2, 2.5) == pytest.approx(2.5 * alone, abs=3)


def test_no_or_a_vanishing_difference_has_no_number() -> None:
    assert count_items_needed(0.0, 1.0) is None
    assert count_items_needed(None, 1.0) is None
    assert count_items_needed(1e-9, 1.0) is None
    assert count_items_needed(1e-5, 1000.0) is None


def test_huge_effect_needs_two_items_at_least() -> None:
    assert count_items_needed(100.0, 1.0) == 2


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_is_that_of_statsmodels(p_values: list[float]) -> None:
    with patch("gc.collect"):
        expected = multipletests(p_values, method="holm")[1]
    assert adjust_holm(p_values) == list(expected)


def test_nothing_to_adjust() -> None:
    assert adjust_holm([]) == []
