"""Comparisons of policies on the same items, and of methods over seeds."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests

from groupwise.core import EvaluationError
from groupwise.evaluation.metrics import (
    PairedComparison,
    compare_items,
    compare_pairs,
    compare_policies,
    write_metrics,
)
from groupwise.evaluation.predictions import (
    Items,
    Prediction,
    digest_items,
    read_as,
    read_predictions,
)
from groupwise.evaluation.statistics import compare_methods, find_half_width, split_variance

Table = Callable[..., list[Prediction]]
BOTH, ONLY_A, ONLY_B, NONE = (1, 1), (1, 0), (0, 1), (0, 0)


@pytest.fixture
def make_pair(make_table: Table) -> Table:
    """Predictions of sft (a) and grpo (b) from (a right, b right) rows."""

    def make(rows: list[tuple[int, int]], group_size: int = 1) -> list[Prediction]:
        answers = [
            ("on-task" if a else "off-task", "on-task" if b else "off-task") for a, b in rows
        ]
        return [
            replace(item, cluster=f"g{n // group_size}")
            for policy, said in zip(("sft", "grpo"), zip(*answers, strict=True), strict=True)
            for n, item in enumerate(make_table([("on-task", x) for x in said], policy=policy))
        ]

    return make


def make_items(
    values: Sequence[float] | np.ndarray, *, per_cluster: int = 1, first: int = 0, **named: object
) -> Items:
    """Values of items from number ``first`` on, so many to a cluster."""
    numbers = range(first, first + len(values))
    items = Items(
        measure="iou",
        split="test",
        policy="sft",
        ids=tuple(f"i{n:06}" for n in numbers),
        clusters=tuple(f"g{n // per_cluster:06}" for n in numbers),
        values=np.asarray(values, dtype=float),
        split_digest="digest",
    )
    return replace(items, **named)


def test_counts_and_difference_of_a_hand_made_table(make_pair):
    rows = [BOTH] * 10 + [ONLY_A] * 2 + [ONLY_B] * 7 + [NONE]
    items = make_pair(rows)
    found = compare_policies(items, "sft", "grpo")
    assert (found.n, found.num_clusters, found.num_a_only, found.num_b_only) == (20, 20, 2, 7)
    assert found.num_same_answer == 11
    assert found.difference == pytest.approx(0.25)
    assert found.low <= 0.25 <= found.high
    assert found.split_digest == digest_items(items[:20])
    back = compare_policies(items, "grpo", "sft")
    assert back.difference == pytest.approx(-0.25)
    assert (back.num_a_only, back.num_b_only) == (7, 2)


def test_mcnemar_is_exact_with_few_discordant_items(make_pair):
    found = compare_policies(make_pair([ONLY_A] * 4 + [ONLY_B] * 20 + [BOTH]), "sft", "grpo")
    assert found.p_value == pytest.approx(stats.binomtest(4, 24).pvalue)


def test_mcnemar_is_statsmodels_with_many_discordant_items(make_pair):
    found = compare_policies(make_pair([ONLY_A] * 10 + [ONLY_B] * 30 + [BOTH]), "sft", "grpo")
    # (|10 - 30| - 1)^2 / 40 = 9.025, one degree of freedom.
    assert found.p_value == pytest.approx(mcnemar([[1, 10], [30, 0]], exact=False).pvalue)
    assert found.p_value == pytest.approx(0.00266, abs=1e-5)


def test_few_single_items_have_the_exact_test(make_pair):
    # All six for b: 2 of 2^6 are as extreme.
    found = compare_policies(make_pair([ONLY_B] * 6), "sft", "grpo")
    assert found.p_value_clustered == pytest.approx(2 / 64)
    # Six of six is no certainty: (6 + 1 - 1) / (6 + 2), and its normal interval.
    half = 1.96 * np.sqrt((1 - 0.75**2) / 8)
    assert (found.low, found.high) == pytest.approx((0.75 - half, 1), abs=1e-4)


def test_clusters_and_not_items_are_the_evidence(make_pair):
    rows = [ONLY_B] * 40 + [ONLY_A] * 10
    alone = compare_policies(make_pair(rows), "sft", "grpo")
    clustered = compare_policies(make_pair(rows, group_size=10), "sft", "grpo")
    assert clustered.p_value == alone.p_value < 0.001
    assert alone.p_value_clustered < 0.001
    # Four clusters for b and one for a.
    assert clustered.p_value_clustered > 0.2
    assert clustered.low <= 0 < alone.low


def test_paired_interval_matches_the_normal_approximation(make_pair):
    rows = [BOTH] * 250 + [ONLY_A] * 30 + [ONLY_B] * 70 + [NONE] * 50
    found = compare_policies(make_pair(rows), "sft", "grpo")
    gains = np.asarray([b - a for a, b in rows])
    half = 1.96 * gains.std() / np.sqrt(len(gains))
    assert (found.low, found.high) == pytest.approx((0.1 - half, 0.1 + half), abs=0.007)


def test_equal_policies_differ_by_nothing_as_far_as_so_many_items_tell(make_pair):
    found = compare_policies(make_pair([BOTH, NONE] * 10), "sft", "grpo")
    half = 1.96 * np.sqrt(2 / 22 / 22)
    assert (found.difference, found.low, found.high) == pytest.approx((0, -half, half), abs=1e-4)
    assert (found.p_value, found.p_value_clustered) == (1, 1)
    assert found.num_same_answer == 20


def test_one_cluster_proves_nothing(make_pair):
    found = compare_policies(make_pair([ONLY_B] * 30, group_size=30), "sft", "grpo")
    assert (found.low, found.high, found.p_value_clustered) == (-1, 1, 1)


def test_holm_adjusts_the_clustered_values_and_nothing_else(full_run):
    predictions = read_predictions(full_run / "evaluate/predictions.jsonl")
    found = read_as(full_run / "evaluate/comparisons.json", list[PairedComparison])
    raw = [one.p_value_clustered for one in found]
    assert [one.p_value_holm for one in found] == pytest.approx(
        list(multipletests(raw, method="holm")[1])
    )
    assert any(one.p_value_holm > one.p_value_clustered for one in found)
    assert [replace(one, p_value_holm=one.p_value_clustered) for one in found] == [
        compare_policies(predictions, one.policy_a, one.policy_b) for one in found
    ]
    assert compare_pairs([], []) == []


def test_other_items_are_refused(make_pair):
    items = make_pair([BOTH] * 5)
    with pytest.raises(EvaluationError, match="5 and 4 items, 4 in common"):
        compare_policies(items[:-1], "sft", "grpo")


@pytest.mark.parametrize("change", [{"label": "off-task"}, {"cluster": "other"}])
def test_same_items_with_other_labels_or_clusters_are_refused(make_pair, change):
    items = make_pair([BOTH] * 5)
    items[-1] = replace(items[-1], **change)
    with pytest.raises(EvaluationError, match="did not answer the same items"):
        compare_policies(items, "sft", "grpo")


def test_missing_policy_is_named(make_pair):
    with pytest.raises(EvaluationError, match="no predictions of prompt on test"):
        compare_policies(make_pair([BOTH]), "prompt", "grpo")


def test_policies_are_compared_on_the_split_that_is_named(make_pair):
    items = make_pair([BOTH, ONLY_B, ONLY_B])
    items += [replace(item, split="dev") for item in items if item.example_id == "i0000"]
    assert compare_policies(items, "sft", "grpo", split="dev").n == 1
    assert compare_policies(items, "sft", "grpo") == compare_policies(
        items, "sft", "grpo", split="test"
    )
    assert compare_policies(items, "sft", "grpo").n == 3


def test_order_of_rows_changes_nothing_and_the_seed_little(make_pair):
    items = make_pair([BOTH] * 30 + [ONLY_A] * 5 + [ONLY_B] * 15)
    assert compare_policies(items[::-1], "sft", "grpo") == compare_policies(items, "sft", "grpo")


def test_file_round_trip(tmp_path, make_pair):
    found = compare_pairs(make_pair([BOTH, ONLY_B]), [("sft", "grpo")])
    write_metrics(tmp_path / "c.json", found)
    assert read_as(tmp_path / "c.json", list[PairedComparison]) == found
    (tmp_path / "c.json").write_text('[{"a": 1}]')
    with pytest.raises(EvaluationError, match=r"c\.json is damaged"):
        read_as(tmp_path / "c.json", list[PairedComparison])


def test_score_is_compared_by_clusters_and_items_where_one_has_more():
    a = make_items([0.1, 0.5, 0.5, 0.9, 0.2, 0.3, 0.3])
    b = make_items([0.3, 0.5, 0.4, 1.0, 0.5, 0.7, 0.35], policy="grpo")
    found = compare_items(a, b)
    gains = b.values - a.values
    assert (found.is_binary, found.measure) == (False, "iou")
    assert found.p_value == found.p_value_clustered >= stats.ttest_1samp(gains, 0).pvalue
    assert (found.value_a, found.value_b) == pytest.approx((2.8 / 7, 3.75 / 7))
    assert (found.num_a_only, found.num_b_only) == (1, 5)
    assert found.num_same_answer == 1
    assert found.difference == pytest.approx(gains.mean())


def test_interval_of_many_items_is_scipys_paired_bootstrap():
    random = np.random.default_rng(0)
    a = random.beta(2, 2, size=600)
    b = np.clip(a + random.normal(0.02, 0.1, size=600), 0, 1)
    found = compare_items(make_items(a), make_items(b))
    ends = stats.bootstrap((b - a,), np.mean, n_resamples=10_000, method="percentile", rng=0)
    assert (found.low, found.high) == pytest.approx(tuple(ends.confidence_interval), abs=3e-3)


def test_draws_are_as_many_as_asked_and_repeat_with_the_seed():
    random = np.random.default_rng(0)
    a, b = (make_items(random.random(80) ** 8) for _ in range(2))
    few, again = (compare_items(a, b, num_resamples=500, seed=1) for _ in range(2))
    assert few == again
    assert few.low != compare_items(a, b, num_resamples=500, seed=2).low
    assert few.low != compare_items(a, b, num_resamples=1000, seed=1).low


def test_differences_of_rounding_are_ties():
    found = compare_items(make_items([0.1 + 0.2] * 30), make_items([0.3] * 30))
    assert (found.num_a_only, found.num_b_only) == (0, 0)
    assert (found.difference, found.p_value) == (0, 1)
    end = stats.t.ppf(0.975, 29) ** 2 / (30 + stats.t.ppf(0.975, 29) ** 2)
    assert (found.low, found.high) == pytest.approx((-end, end))


def test_every_item_better_by_the_same_has_no_spread():
    found = compare_items(make_items([0.25] * 30), make_items([0.5] * 30))
    end = stats.t.ppf(0.975, 29) ** 2 / (30 + stats.t.ppf(0.975, 29) ** 2)
    assert (found.low, found.high) == pytest.approx((0.25 - end, 0.25 + end))
    assert found.p_value == pytest.approx(2 / 2**30)


def test_clusters_of_very_different_sizes_count_by_their_items():
    # One cluster of 300 items gains nothing, 30 of one item gain 0.5 each.
    clusters = (*["0"] * 300, *map(str, range(1, 31)))
    a = make_items([0.5] * 330, clusters=clusters)
    b = make_items([0.5] * 300 + [1.0] * 30, clusters=clusters)
    found = compare_items(a, b)
    assert found.difference == pytest.approx(15 / 330)
    assert found.num_clusters == 31
    # The giant is missing in a third of all draws, which leaves a gain of 0.5.
    assert found.low < found.difference < 0.4 < found.high


def test_measure_is_chosen_by_name(make_pair):
    items = [
        replace(item, scores={"iou": 0.5 + 0.5 * item.is_correct})
        for item in make_pair([BOTH] * 10 + [ONLY_B] * 10)
    ]
    (found,) = compare_pairs(items, [("sft", "grpo")], measure="iou")
    assert (found.measure, found.value_a, found.value_b) == ("iou", 0.75, 1.0)
    assert not found.is_binary


def test_pairs_are_the_unit_of_pair_accuracy(make_pair):
    items = [
        replace(item, pair=f"p{int(item.example_id[1:]) // 2}")
        for item in make_pair([BOTH, ONLY_B] * 12 + [BOTH] * 12, group_size=2)
    ]
    found = compare_policies(items, "sft", "grpo", measure="pair_accuracy")
    assert (found.n, found.num_b_only, found.num_a_only) == (18, 12, 0)
    assert found.p_value == pytest.approx(stats.binomtest(0, 12).pvalue)
    assert found.num_same_answer == 6


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"measure": "f"}, "iou on test and f on test"),
        ({"split": "dev"}, "iou on test and iou on dev"),
        ({"ids": ("i000000", "i000002")}, "2 and 2 items, 1 in common"),
        ({"clusters": ("g", "g")}, "same ids, labels and clusters"),
        ({"labels": ("x", "z")}, "same ids, labels and clusters"),
    ],
)
def test_unlike_items_are_refused(change, words):
    a = make_items([0.1, 0.2], labels=("x", "y"))
    with pytest.raises(EvaluationError, match=words):
        compare_items(a, replace(a, **change))


def test_old_files_are_read_and_new_ones_hold_plain_numbers(tmp_path, make_pair):
    found = compare_pairs(make_pair([BOTH, ONLY_B, ONLY_A] * 5), [("sft", "grpo")])
    write_metrics(tmp_path / "c.json", found)
    (row,) = json.loads((tmp_path / "c.json").read_text())
    old = list(row)[: list(row).index("split_digest") + 1]
    (tmp_path / "old.json").write_text(json.dumps([{name: row[name] for name in old}]))
    (one,) = read_as(tmp_path / "old.json", list[PairedComparison])
    assert (one.measure, one.value_a, one.num_carrying) == ("accuracy", None, None)
    assert one.difference == found[0].difference
    (tmp_path / "gone.json").write_text(json.dumps([{**row, "effect_size": 0.5, "test": "x"}]))
    assert read_as(tmp_path / "gone.json", list[PairedComparison]) == found


def draw_method(
    rng: np.random.Generator,
    shares: Sequence[float],
    *,
    num_items: int = 60,
    apart: bool = False,
    first: int = 0,
) -> list[Items]:
    """A run for each share, with items of its own where they are ``apart``."""
    return [
        make_items(rng.random(num_items) < share, per_cluster=4, first=first + 1000 * n * apart)
        for n, share in enumerate(shares)
    ]


@pytest.mark.parametrize("is_paired", [False, True])
@pytest.mark.parametrize("apart", [False, True])
def test_interval_leaves_out_0_just_where_p_is_below_5_percent(is_paired, apart):
    rng, shown = np.random.default_rng(3), 0
    for _ in range(30):
        a, b = (
            draw_method(rng, rng.uniform(middle - 0.1, middle + 0.1, 4), apart=apart, first=first)
            for middle, first in ((0.6, 0), (0.7, 10_000 if apart and not is_paired else 0))
        )
        found = compare_methods(a, b, is_paired=is_paired)
        is_shown = not found.low <= 0 <= found.high
        assert found.design == ("nested" if apart else "crossed")
        assert (found.p_value < 0.05) == is_shown
        other = compare_methods(b, a, is_paired=is_paired)
        assert (other.estimate, other.low) == pytest.approx((-found.estimate, -found.high))
        shown += is_shown
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
def test_seeds_with_items_of_their_own_are_compared_by_students_t(is_paired):
    rng = np.random.default_rng(5)
    a = draw_method(rng, (0.5, 0.6, 0.7, 0.6), apart=True)
    b = draw_method(rng, (0.6, 0.7, 0.8, 0.9), apart=True, first=0 if is_paired else 10_000)
    found = compare_methods(a, b, is_paired=is_paired)
    means = [[one.value for one in side] for side in (b, a)]
    want = stats.ttest_rel(*means) if is_paired else stats.ttest_ind(*means, equal_var=False)
    ends = want.confidence_interval()
    assert (found.low, found.high) == pytest.approx((ends.low, ends.high))
    assert (found.p_value, found.df) == pytest.approx((want.pvalue, want.df))
    assert found.num_carrying is None
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
def test_without_an_interval_there_are_points_and_the_reason(runs, limit):
    better = [replace(one, values=np.ones(len(one.ids))) for one in runs]
    a = better if limit == "no_spread" else runs
    found = compare_methods(a, better, is_paired=True)
    assert found.limit == limit
    assert found.estimate == pytest.approx(1 - np.mean([one.value for one in a]))
    assert {found.low, found.p_value, found.df, found.seed_share} == {None}


def test_few_clusters_that_carry_the_gain_are_counted():
    rng = np.random.default_rng(1)
    a = draw_method(rng, (0.5,) * 3, num_items=160)
    b = [replace(one, values=one.values.copy()) for one in a]
    for n, one in enumerate(b):
        one.values[: 16 + 4 * n] = 1
    assert compare_methods(a, b, is_paired=True).num_carrying < 6


def test_sides_that_do_not_belong_together_are_refused():
    runs = [make_items([0, 1, 1])] * 3
    with pytest.raises(EvaluationError, match="3 and 2 seeds"):
        compare_methods(runs, runs[:2], is_paired=True)
    other = [make_items([0, 1, 1], first=50)] * 3
    with pytest.raises(EvaluationError, match="did not answer the same items"):
        compare_methods(runs, other, is_paired=True)
