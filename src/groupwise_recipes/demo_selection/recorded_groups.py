"""Recorded candidates as tensors: what the selector is trained on."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from groupwise.core import DataError, RewardError
from groupwise_recipes.demo_selection.settings import RewardMode

MAX_REWARDS: Mapping[RewardMode, float] = {
    "hard_plus_soft": 2.0,
    "separated": 3.0,
    "hard_only": 1.0,
    "soft_only": 1.0,
}
"""The greatest raw reward of each mode."""


@dataclass(frozen=True)
class RecordedGroups:
    """Queries, their pools, and the lists that were tried for each with what they earned.

    Attributes:
        queries: features, shape [Q, d].
        pools: features of the candidates, shape [Q, K, d].
        lists: positions in the pool, in the order of the prompt, shape [Q, G, S].
        rewards: raw, as ``combine_rewards`` gives them, shape [Q, G].
        present: which lists there are and could be scored, shape [Q, G]; what stands in lists and
            rewards elsewhere does not matter.
        max_reward: the greatest raw reward there can be, as in ``MAX_REWARDS``. Losses see raw
            rewards; the share of it that is earned is what is logged.
    """

    queries: torch.Tensor
    pools: torch.Tensor
    lists: torch.Tensor
    rewards: torch.Tensor
    present: torch.Tensor
    max_reward: float = 1.0

    def __post_init__(self) -> None:
        self._check_shapes()
        length, num_items = self.lists.shape[-1], self.pools.shape[1]
        # A list that is not there must still have a log-probability that is a number.
        filler = torch.arange(length, device=self.lists.device)
        lists = torch.where(self.present.unsqueeze(-1), self.lists, filler)
        is_inside = ((lists >= 0) & (lists < num_items)).all(-1)
        ordered = lists.sort(-1).values
        repeats = (ordered.diff(dim=-1) == 0).any(-1)
        _refuse("lists name each position of the pool at most once", repeats | ~is_inside)
        rewards = self.rewards.masked_fill(~self.present, torch.nan)
        is_possible = (rewards >= 0) & (rewards <= self.max_reward)
        _refuse(f"rewards lie in [0, {self.max_reward:g}]", self.present & ~is_possible)
        object.__setattr__(self, "lists", lists)
        object.__setattr__(self, "rewards", rewards)

    def _check_shapes(self) -> None:
        (num_queries, size), (_, num_lists, length) = self.queries.shape, self.lists.shape
        num_items = self.pools.shape[1]
        expected = {
            "pools": (num_queries, num_items, size),
            "lists": (num_queries, num_lists, length),
            "rewards": (num_queries, num_lists),
            "present": (num_queries, num_lists),
        }
        found = {name: tuple(getattr(self, name).shape) for name in expected}
        if found != expected or not 1 <= length <= num_items or not num_queries * num_lists:
            raise DataError(
                "recorded groups do not fit together", got=found, expected=f"{expected}, S ≤ K"
            )
        if not self.present.any():
            raise DataError("recorded groups have no list that could be scored")

    def __len__(self) -> int:
        """Number of queries."""
        return len(self.queries)

    def take(self, rows: torch.Tensor, *, device: torch.device) -> tuple[torch.Tensor, ...]:
        """Return queries, pools and lists of some rows, on a device."""
        return tuple(value[rows].to(device) for value in (self.queries, self.pools, self.lists))


def _refuse(rule: str, broken: torch.Tensor) -> None:
    if broken.any():
        query, place = broken.nonzero()[0].tolist()
        raise DataError(
            f"in recorded groups {rule}",
            got=f"{int(broken.sum())} lists that break this, the first is list {place} of query "
            f"{query}",
        )


def combine_rewards(hard: torch.Tensor, soft: torch.Tensor, *, mode: RewardMode) -> torch.Tensor:
    """Return raw rewards of answers, of their shape.

    ``hard_plus_soft``: hard + soft; ``separated``: 2 + soft where correct, else soft;
    ``hard_only``, ``soft_only``: the one of them.

    Args:
        hard: 1 where the answer counts as correct, else 0.
        soft: VQA accuracy, in [0, 1].
        mode: which of them.
    """
    modes = {
        "hard_plus_soft": hard + soft,
        "separated": 2 * hard + soft,
        "hard_only": hard,
        "soft_only": soft,
    }
    if mode not in modes:
        names = ", ".join(modes)
        raise RewardError("there is no such reward mode", got=mode, expected=f"one of {names}")
    return modes[mode]


def keep_best(rewards: torch.Tensor, num_kept: int) -> torch.Tensor:
    """Return the rewards of each group's best lists, NaN for the others, shape [Q, G].

    Of equal ones the first are kept. Keeping the best alone removes what they are better than: a
    group whose best all earned the same is dead, whatever the rest earned.

    Args:
        rewards: NaN where absent, shape [Q, G].
        num_kept: lists of each group.
    """
    order = rewards.nan_to_num(nan=-torch.inf).argsort(dim=1, descending=True, stable=True)
    is_kept = torch.zeros_like(rewards, dtype=torch.bool).scatter(1, order[:, :num_kept], True)
    return rewards.masked_fill(~is_kept, torch.nan)
