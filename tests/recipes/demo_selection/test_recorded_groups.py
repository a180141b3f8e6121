"""Recorded candidates as tensors are checked, and earn what their mode says."""

import math

import pytest
import torch

from groupwise.core import DataError, RewardError
from groupwise_recipes.demo_selection.recorded_groups import (
    MAX_REWARDS,
    RecordedGroups,
    combine_rewards,
    keep_best,
)


def make(lists, rewards, present=None, num_items=4):
    lists = torch.tensor(lists)
    num_queries = len(lists)
    return RecordedGroups(
        torch.ones(num_queries, 3),
        torch.ones(num_queries, num_items, 3),
        lists,
        torch.tensor(rewards),
        torch.ones(lists.shape[:2], dtype=torch.bool) if present is None else torch.tensor(present),
        max_reward=2.0,
    )


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("hard_plus_soft", [0.0, 1.3, 2.0, 0.3]),
        ("separated", [0.0, 2.3, 3.0, 0.3]),
        ("hard_only", [0.0, 1.0, 1.0, 0.0]),
        ("soft_only", [0.0, 0.3, 1.0, 0.3]),
    ],
)
def test_reward_modes(mode, expected):
    hard, soft = torch.tensor([0.0, 1.0, 1.0, 0.0]), torch.tensor([0.0, 0.3, 1.0, 0.3])
    assert combine_rewards(hard, soft, mode=mode).tolist() == pytest.approx(expected)
    assert MAX_REWARDS[mode] == max(expected)


def test_an_unknown_reward_mode_is_refused():
    with pytest.raises(RewardError, match="got hard_and_soft; expected one of hard_plus_soft, sep"):
        combine_rewards(torch.ones(1), torch.ones(1), mode="hard_and_soft")


def test_what_is_absent_does_not_matter():
    groups = make([[[2, 1], [-1, -1]]], [[1.0, math.inf]], [[True, False]])
    assert groups.lists.tolist() == [[[2, 1], [0, 1]]]
    assert groups.rewards[0, 0] == 1
    assert groups.rewards[0, 1].isnan()
    assert len(groups) == 1


@pytest.mark.parametrize(
    ("given", "match"),
    [
        (([[[0, 1], [2, 2]]], [[1.0, 0.0]]), "at most once; got 1 lists .* list 1 of query 0"),
        (([[[0, 4], [2, 1]]], [[1.0, 0.0]]), "list 0 of query 0"),
        (([[[0, -1], [2, 1]]], [[1.0, 0.0]]), "list 0 of query 0"),
        (([[[0, 1], [2, 1]]], [[1.0, math.nan]]), r"lie in \[0, 2\]; got 1 lists"),
        (([[[0, 1], [2, 1]]], [[1.0, 2.3]]), r"lie in \[0, 2\]; got 1 lists"),
        (([[[0, 1], [2, 1]]], [[1.0]]), "do not fit together"),
        (([[[0, 1, 2, 3, 0]]], [[1.0]]), "do not fit together"),
        (([[[0, 1]]], [[1.0]], [[False]]), "no list that could be scored"),
    ],
)
def test_what_does_not_fit_is_refused(given, match):
    with pytest.raises(DataError, match=match):
        make(*given)


def test_the_best_of_a_group_are_kept_and_of_equal_ones_the_first():
    rewards = torch.tensor([[0.0, 2.0, math.nan, 1.3, 1.3], [math.nan, math.nan, math.nan, 1, 0]])
    kept = ~keep_best(rewards, 2).isnan()
    assert kept.tolist() == [[False, True, False, True, False], [False] * 3 + [True, True]]
    assert keep_best(rewards, 9).nan_to_num(-1).equal(rewards.nan_to_num(-1))
