"""Figures of recorded candidates: how many lists are right, and do rewards differ at all?

A list is positive if its answer is correct by the recording's definition. Lists whose evaluation
failed have no reward and count nowhere but among the failed.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from groupwise_recipes.demo_selection.candidates import Recording
from groupwise_recipes.demo_selection.recorded_groups import combine_rewards
from groupwise_recipes.demo_selection.settings import RewardMode


@dataclass(frozen=True, slots=True)
class CandidateFigures:
    """Counts of a recording.

    Attributes:
        num_queries: recorded queries.
        num_lists: recorded lists.
        num_failed: lists whose evaluation failed.
        num_positive_queries: queries with a positive list.
        num_positive_lists: positive lists.
        num_equal_queries: queries whose rewards have no variance, those without rewards included.
        mean_reward: over the lists that have one; None: there are none.
        distinct_rewards: number of queries by how many different rewards their lists have.
        methods: lists by what made them.
        rewards: lists by reward.
    """

    num_queries: int
    num_lists: int
    num_failed: int
    num_positive_queries: int
    num_positive_lists: int
    num_equal_queries: int
    mean_reward: float | None
    distinct_rewards: Mapping[int, int]
    methods: Mapping[str, int]
    rewards: Mapping[float, int]


def measure_candidates(recording: Recording, *, mode: RewardMode) -> CandidateFigures:
    """Return the counts of a recording.

    Args:
        recording: the lists.
        mode: how hard and soft values make a reward, the same as in training.

    Raises:
        DataError: if correct is what was recorded and nothing was.
        RewardError: if there is no such mode.
    """
    values = [
        [value for one in query.candidates if (value := recording.read_values(one)) is not None]
        for query in recording.queries
    ]
    rewards = [_combine(of_query, mode) for of_query in values]
    every = [one for of_query in rewards for one in of_query]
    positive = [sum(hard > 0 for hard, _ in of_query) for of_query in values]
    distinct = [len(set(of_query)) for of_query in rewards]
    lists = [one for query in recording.queries for one in query.candidates]
    return CandidateFigures(
        num_queries=len(recording.queries),
        num_lists=len(lists),
        num_failed=len(lists) - len(every),
        num_positive_queries=sum(count > 0 for count in positive),
        num_positive_lists=sum(positive),
        num_equal_queries=sum(count < 2 for count in distinct),
        mean_reward=sum(every) / len(every) if every else None,
        distinct_rewards=dict(sorted(Counter(distinct).items())),
        methods=dict(sorted(Counter(one.method for one in lists).items())),
        rewards=dict(sorted(Counter(every).items())),
    )


def _combine(values: Sequence[tuple[float, float]], mode: RewardMode) -> list[float]:
    pairs = torch.tensor(values, dtype=torch.float64).reshape(-1, 2)
    return combine_rewards(pairs[:, 0], pairs[:, 1], mode=mode).tolist()
