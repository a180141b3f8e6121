from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from groupwise.core import EvaluationError
from groupwise.evaluation.methods import (
    MethodDifference,
    compare_methods,
    count_items_needed,
    count_seeds_needed,
    find_half_width,
    find_power,
    split_variance,
)
from groupwise.evaluation.predictions import Items


def make_items(values: Sequence[float], *, per_cluster: int = 4, first: int = 0) -> Items:
    count = range(first, first + len(values))
    return Items(
        measure="accuracy",
        split="test",
        policy="p",
        ids=tuple(f"{n:06}" for n in count),
        clusters=tuple(f"c{n // per_cluster}" for n in count),
        values=np.asarray(values, float),
        is_binary=True,
        split_digest="d",
    )


def draw_method(
    rng: np.random.Generator, shares: Sequence[float], *, num_items: int = 60, apart: bool = False
) -> list[Items]:
    return [
        make_items(rng.random(num_items) < share, first=1000 * n if apart else 0)
        for n, share in enumerate(shares)
    ]


def is_shown(found: MethodDifference) -> bool:
    assert found.low is not None
    assert found.high is not None
    return not found.low <= 0 <= found.high


@pytest.mark.parametrize("is_paired", [False, True])
@pytest.mark.parametrize("apart", [False, True])
def test_interval_leaves_out_0_just_where_p_is_below_5_percent(is_paired: bool, apart: bool):
    rng, shown = np.random.default_rng(3), 0
    for _ in range(30):
        a, b = (
            draw_method(rng, rng.uniform(middle - 0.1, middle + 0.1, 4), apart=apart)
            for middle in (0.6, 0.7)
        )
        if apart and not is_paired:
            b = [make_items(one.values, first=10_000 + 1000 * n) for n, one in enumerate(b)]
        found = compare_methods(a, b, is_paired=is_paired)
        assert found.design == ("nested" if apart else "crossed")
        assert (found.p_value < 0.05) == is_shown(found)
        other = compare_methods(b, a, is_paired=is_paired)
        assert (other.estimate, other.low) == pytest.approx((-found.estimate, -found.high))
        shown += is_shown(found)
    assert 0 < shown < 30


def test_components_recover_what_was_put_in():
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(2, 2000, 5, 40)) * 3
    b += 2 * rng.normal(size=(2000, 5, 1)) * 8 + 4 * rng.normal(size=(2000, 1, 40))
    parts = split_variance(a, b, np.full(40, 8.0), is_paired=False)
    seed, cluster, both = 4 / 5, 16 / 64 / 40, 2 * 9 / 64 / 40 / 5
    assert parts.seed.mean() == pytest.approx(seed + both, rel=0.06)
    assert parts.cluster.mean() == pytest.approx(cluster + both, rel=0.06)
    assert parts.interaction.mean() == pytest.approx(both, rel=0.06)
    assert parts.estimate.var() == pytest.approx(seed + cluster + both, rel=0.1)


@given(seed=st.integers(0, 10**6), is_paired=st.booleans(), num_seeds=st.integers(3, 6))
def test_interval_is_never_narrower_than_that_of_items_or_of_seeds_alone(
    seed, is_paired, num_seeds
):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 9, 12).astype(float)
    a, b = rng.normal(size=(2, num_seeds, 12))
    parts = split_variance(a, b, sizes, is_paired=is_paired)
    items = stats.t.ppf(0.975, parts.cluster_df) * parts.cluster**0.5
    seeds = stats.t.ppf(0.975, parts.seed_df) * parts.seed**0.5
    assert find_half_width(parts) >= max(items, seeds) - 1e-12


@pytest.mark.parametrize("is_paired", [False, True])
def test_seeds_with_items_of_their_own_are_compared_by_students_t(is_paired: bool):
    rng = np.random.default_rng(5)
    a = draw_method(rng, (0.5, 0.6, 0.7, 0.6), apart=True)
    b = draw_method(rng, (0.6, 0.7, 0.8, 0.9), apart=True)
    if not is_paired:
        b = [make_items(one.values, first=10_000 + 1000 * n) for n, one in enumerate(b)]
    found = compare_methods(a, b, is_paired=is_paired)
    means = [[one.value for one in side] for side in (b, a)]
    want = stats.ttest_rel(*means) if is_paired else stats.ttest_ind(*means, equal_var=False)
    ends = want.confidence_interval()
    assert (found.low, found.high) == pytest.approx((ends.low, ends.high))
    assert (found.p_value, found.df) == pytest.approx((want.pvalue, want.df))
    assert (found.items_needed, found.num_carrying) == (None, None)
    assert 0 <= found.seed_share <= 1


def test_share_of_seeds_is_large_where_they_differ_and_small_where_they_do_not():
    rng = np.random.default_rng(8)
    for apart in (False, True):
        wild = draw_method(rng, (0.2, 0.5, 0.9, 0.4, 0.7), num_items=400, apart=apart)
        calm = draw_method(rng, (0.5,) * 5, num_items=400, apart=apart)
        same = draw_method(rng, (0.5,) * 5, num_items=400, apart=apart)
        assert compare_methods(calm, wild, is_paired=True).seed_share > 0.8
        assert compare_methods(calm, same, is_paired=True).seed_share < 0.5


@pytest.mark.parametrize(
    ("runs", "limit"),
    [
        ([make_items([0, 1, 1, 0] * 5), make_items([0, 1, 0, 0] * 5)], "few_seeds"),
        ([make_items([0, 1, 1, 0], per_cluster=9)] * 3, "one_cluster"),
        ([make_items([0, 1] * 9, first=n) for n in range(3)], "overlapping"),
        ([make_items([0, 1] * 9)] * 3, "no_spread"),
    ],
)
def test_without_an_interval_there_are_points_and_the_reason(runs: list[Items], limit: str):
    better = [replace(one, values=np.ones(len(one.ids))) for one in runs]
    a = better if limit == "no_spread" else runs
    found = compare_methods(a, better, is_paired=True)
    assert found.limit == limit
    assert found.estimate == pytest.approx(1 - np.mean([one.value for one in a]))
    assert {found.low, found.p_value, found.df, found.seeds_needed, found.seed_share} == {None}


def test_few_clusters_that_carry_the_gain_are_counted():
    rng = np.random.default_rng(1)
    a = draw_method(rng, (0.5,) * 3, num_items=160)
    b = [replace(one, values=one.values.copy()) for one in a]
    for n, one in enumerate(b):
        one.values[: 16 + 4 * n] = 1
    assert compare_methods(a, b, is_paired=True).num_carrying < 6


def test_more_seeds_and_items_show_more():
    rng = np.random.default_rng(6)
    a, b = rng.normal(size=(2, 5, 40)) + rng.normal(size=(2, 5, 1))
    parts = split_variance(a, b + 0.7, np.ones(40), is_paired=False)
    seen = [find_power(parts, num) for num in (3, 5, 10, 30)]
    assert seen == sorted(seen)
    needed = count_seeds_needed(parts)
    assert find_power(parts, needed) >= 0.8 > find_power(parts, needed - 1)
    assert count_items_needed(parts, 40) is None
    clear = replace(parts, estimate=parts.estimate * 8)
    items = count_items_needed(clear, 40)
    shown = [find_power(clear, 5, more_items=num / 40) for num in (items - 1, items)]
    assert shown[0] < 0.8 <= shown[1]


@pytest.mark.parametrize("gain", [1, 10, 1000])
def test_a_difference_far_beyond_the_spread_needs_few_seeds_and_items(gain: int):
    a, b = np.random.default_rng(6).normal(size=(2, 6, 60)) * 0.1
    parts = split_variance(a, b + gain, np.ones(60), is_paired=True)
    assert [count_seeds_needed(parts), count_items_needed(parts, 60) < 10] == [3, True]


def test_sides_that_do_not_belong_together_are_refused():
    runs = [make_items([0, 1, 1])] * 3
    with pytest.raises(EvaluationError, match="3 and 2 seeds"):
        compare_methods(runs, runs[:2], is_paired=True)
    other = [make_items([0, 1, 1], first=50)] * 3
    with pytest.raises(EvaluationError, match="did not answer the same items"):
        compare_methods(runs, other, is_paired=True)
