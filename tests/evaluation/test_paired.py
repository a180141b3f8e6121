from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binomtest
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests

from groupwise.core import EvaluationError
from groupwise.evaluation import (
    Prediction,
    compare_pairs,
    compare_policies,
    digest_items,
    read_comparisons,
    write_comparisons,
)

Table = Callable[..., list[Prediction]]
BOTH, ONLY_A, ONLY_B, NONE = (1, 1), (1, 0), (0, 1), (0, 0)


@pytest.fixture
def make_pair(make_table: Table) -> Callable[..., list[Prediction]]:
    """Predictions of sft (a) and grpo (b) from (a right, b right) rows."""

    def make(rows: list[tuple[int, int]], group_size: int = 1) -> list[Prediction]:
        found: list[Prediction] = []
        for place, policy in enumerate(("sft", "grpo")):
            answers = [("on-task", "on-task" if row[place] else "off-task") for row in rows]
            found += [
                replace(item, group=f"g{n // group_size}")
                for n, item in enumerate(make_table(answers, policy=policy))
            ]
        return found

    return make


def test_counts_and_difference_of_a_hand_made_table(make_pair: Table) -> None:
    rows = [BOTH] * 10 + [ONLY_A] * 2 + [ONLY_B] * 7 + [NONE]
    items = make_pair(rows)
    found = compare_policies(items, "sft", "grpo")
    assert (found.n, found.num_groups, found.num_a_only, found.num_b_only) == (20, 20, 2, 7)
    assert found.num_same_answer == 11
    assert found.difference == pytest.approx(0.25)
    assert found.low <= 0.25 <= found.high
    assert found.split_digest == digest_items(items[:20])
    back = compare_policies(items, "grpo", "sft")
    assert back.difference == pytest.approx(-0.25)
    assert (back.num_a_only, back.num_b_only) == (7, 2)


def test_mcnemar_is_exact_with_few_discordant_items(make_pair: Table) -> None:
    found = compare_policies(make_pair([ONLY_A] * 4 + [ONLY_B] * 20 + [BOTH]), "sft", "grpo")
    assert found.p_value == pytest.approx(binomtest(4, 24).pvalue)


def test_mcnemar_is_statsmodels_with_many_discordant_items(make_pair: Table) -> None:
    found = compare_policies(make_pair([ONLY_A] * 10 + [ONLY_B] * 30 + [BOTH]), "sft", "grpo")
    # (|10 - 30| - 1)^2 / 40 = 9.025, one degree of freedom.
    assert found.p_value == pytest.approx(mcnemar([[1, 10], [30, 0]], exact=False).pvalue)
    assert found.p_value == pytest.approx(0.00266, abs=1e-5)


def test_permutation_of_few_groups_is_exact(make_pair: Table) -> None:
    # Six groups, all for b: 2 of the 2^6 sign patterns are as extreme.
    found = compare_policies(make_pair([ONLY_B] * 6), "sft", "grpo")
    assert found.p_value_clustered == pytest.approx(2 / 64)
    assert (found.low, found.high) == (1, 1)


def test_groups_and_not_items_are_the_evidence(make_pair: Table) -> None:
    rows = [ONLY_B] * 40 + [ONLY_A] * 10
    alone = compare_policies(make_pair(rows), "sft", "grpo")
    grouped = compare_policies(make_pair(rows, group_size=10), "sft", "grpo")
    assert grouped.p_value == alone.p_value < 0.001
    assert alone.p_value_clustered < 0.001
    # Four groups for b and one for a: 12 of 32 sign patterns are as extreme.
    assert grouped.p_value_clustered == pytest.approx(12 / 32)
    assert grouped.low <= 0 < alone.low


def test_paired_interval_matches_the_normal_approximation(make_pair: Table) -> None:
    rows = [BOTH] * 250 + [ONLY_A] * 30 + [ONLY_B] * 70 + [NONE] * 50
    found = compare_policies(make_pair(rows), "sft", "grpo")
    gains = np.asarray([b - a for a, b in rows])
    half = 1.96 * gains.std() / np.sqrt(len(gains))
    assert (found.low, found.high) == pytest.approx((0.1 - half, 0.1 + half), abs=0.007)


def test_equal_policies_differ_by_nothing(make_pair: Table) -> None:
    found = compare_policies(make_pair([BOTH, NONE] * 10), "sft", "grpo")
    assert (found.difference, found.low, found.high) == (0, 0, 0)
    assert (found.p_value, found.p_value_clustered) == (1, 1)
    assert found.num_same_answer == 20


def test_one_group_proves_nothing(make_pair: Table) -> None:
    found = compare_policies(make_pair([ONLY_B] * 30, group_size=30), "sft", "grpo")
    assert (found.low, found.high, found.p_value_clustered) == (-1, 1, 1)


def test_holm_adjusts_the_clustered_values(full_run: Path) -> None:
    found = read_comparisons(full_run / "evaluate/comparisons.json")
    raw = [one.p_value_clustered for one in found]
    assert [one.p_value_holm for one in found] == pytest.approx(
        list(multipletests(raw, method="holm")[1])
    )
    assert any(one.p_value_holm > one.p_value_clustered for one in found)
    assert compare_pairs([], []) == []


def test_other_items_are_refused(make_pair: Table) -> None:
    items = make_pair([BOTH] * 5)
    with pytest.raises(EvaluationError, match="5 and 4 items, 4 in common"):
        compare_policies(items[:-1], "sft", "grpo")


@pytest.mark.parametrize("change", [{"label": "off-task"}, {"group": "other"}])
def test_same_items_with_other_labels_or_groups_are_refused(
    make_pair: Table, change: dict[str, str]
) -> None:
    items = make_pair([BOTH] * 5)
    items[-1] = replace(items[-1], **change)
    with pytest.raises(EvaluationError, match="did not answer the same items"):
        compare_policies(items, "sft", "grpo")


def test_missing_policy_is_named(make_pair: Table) -> None:
    with pytest.raises(EvaluationError, match="no predictions of prompt on test"):
        compare_policies(make_pair([BOTH]), "prompt", "grpo")


def test_split_must_be_named_if_there_are_several(make_pair: Table) -> None:
    items = make_pair([BOTH, ONLY_B, ONLY_B])
    items += [replace(item, split="dev") for item in items if item.example_id == "i0000"]
    with pytest.raises(EvaluationError, match=r"more than one split.*dev.*test"):
        compare_policies(items, "sft", "grpo")
    assert compare_policies(items, "sft", "grpo", split="dev").n == 1
    assert compare_policies(items, "sft", "grpo", split="test").n == 3


def test_order_of_rows_changes_nothing_and_the_seed_little(make_pair: Table) -> None:
    items = make_pair([BOTH] * 30 + [ONLY_A] * 5 + [ONLY_B] * 15)
    assert compare_policies(items[::-1], "sft", "grpo") == compare_policies(items, "sft", "grpo")


def test_file_round_trip(tmp_path: Path, make_pair: Table) -> None:
    found = compare_pairs(make_pair([BOTH, ONLY_B]), [("sft", "grpo")])
    write_comparisons(tmp_path / "c.json", found)
    assert read_comparisons(tmp_path / "c.json") == found
    (tmp_path / "c.json").write_text('[{"a": 1}]')
    with pytest.raises(EvaluationError, match=r"c\.json is not a list of comparisons"):
        read_comparisons(tmp_path / "c.json")
