"""Ways of choosing a list of demonstrations for each query: a selector, and what it must beat.

All lists hold ids of train items in the order of the prompt; the best candidate stands first, as a
selector picks it. A retrieval whose source puts the most similar last, next to the query (RICES of
Flamingo), is these lists turned round.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch

from groupwise.core import ConfigError, DataError, Example, derive_seed
from groupwise_recipes.demo_selection.asking import List
from groupwise_recipes.demo_selection.features import FeatureTable
from groupwise_recipes.demo_selection.pools import Pools
from groupwise_recipes.demo_selection.selector import PointerSelector

Likeness = Literal["text", "picture", "both"]
Baseline = Literal[
    "none", "random", "nearest_text", "nearest_picture", "nearest_both", "mmices", "knn_few_shot"
]
BASELINES: tuple[Baseline, ...] = get_args(Baseline)
"""Systems that are not trained, but the oracle."""
_NEAREST: dict[Baseline, Likeness] = {
    "nearest_text": "text",
    "nearest_picture": "picture",
    "nearest_both": "both",
}
_AT_ONCE = 64


@dataclass(frozen=True)
class PooledQueries:
    """Queries and what their lists are chosen from.

    Attributes:
        queries: all different.
        features: of the queries, in their order.
        train: features of the demonstrations.
        pools: of the queries, among the demonstrations.
    """

    queries: tuple[Example, ...]
    features: FeatureTable
    train: FeatureTable
    pools: Pools

    def __post_init__(self) -> None:
        """Check that the parts belong together."""
        if self.features.ids != tuple(query.id for query in self.queries):
            raise DataError("queries and their features differ, or stand in another order")
        missing = [one for one in self.features.ids if one not in self.pools.members]
        if missing:
            raise DataError(f"{len(missing)} queries have no pool", got=missing[0])

    def __len__(self) -> int:
        """Number of queries."""
        return len(self.queries)

    @property
    def members(self) -> torch.Tensor:
        """Positions of the pools among the demonstrations, shape [Q, K]."""
        return torch.tensor([self.pools.members[query.id] for query in self.queries])

    def name_pool(self, query: str) -> List:
        """Return the ids of a query's pool, in its order."""
        return tuple(self.train.ids[place] for place in self.pools.members[query])

    def split(self, size: int) -> Iterator[tuple[range, torch.Tensor, torch.Tensor]]:
        """Yield numbers of queries, their features [B, d] and those of their pools [B, K, d]."""
        queries, train, members = self.features.joined, self.train.joined, self.members
        for start in range(0, len(self), size):
            rows = range(start, min(start + size, len(self)))
            yield rows, queries[rows.start : rows.stop], train[members[rows.start : rows.stop]]

    def name_lists(self, positions: torch.Tensor) -> list[List]:
        """Return the ids of one list for each query from positions in its pool, shape [Q, S]."""
        places = self.members.gather(1, positions).tolist()
        return [tuple(self.train.ids[place] for place in row) for row in places]


def choose_by_selector(
    selector: PointerSelector, asked: PooledQueries, *, num_shots: int
) -> list[List]:
    """Return the selector's greedy list for each query."""
    device = next(selector.parameters()).device
    selector.eval()
    chosen = [
        selector.choose(queries.to(device), pools.to(device), num_shots=num_shots).cpu()
        for _, queries, pools in asked.split(_AT_ONCE)
    ]
    return asked.name_lists(torch.cat(chosen))


def choose_by_baseline(
    baseline: Baseline, asked: PooledQueries, *, num_shots: int, seed: int = 0, num_near: int = 16
) -> list[List]:
    """Return a list for each query that no training went into."""
    if baseline == "none":
        return [()] * len(asked)
    if baseline == "random":
        return [_draw(asked.name_pool(one), num_shots, seed, one) for one in asked.features.ids]
    if baseline == "knn_few_shot":
        return _find_in_train(asked, num_shots)
    if baseline == "mmices":
        _check(num_shots, min(num_near, asked.members.shape[1]))
        near = rank_pools(asked, by="picture")[:, :num_near]
        by_text = measure_likeness(asked, by="text").gather(1, near)
        return asked.name_lists(near.gather(1, _rank(by_text)[:, :num_shots]))
    return choose_highest(
        measure_likeness(asked, by=_NEAREST[baseline]), asked, num_shots=num_shots
    )


def choose_highest(scores: torch.Tensor, asked: PooledQueries, *, num_shots: int) -> list[List]:
    """Return for each query the candidates with the highest scores, the best first.

    Args:
        scores: of queries and their candidates, shape [Q, K].
        asked: queries and their pools.
        num_shots: demonstrations of a list.
    """
    _check(num_shots, scores.shape[1])
    return asked.name_lists(_rank(scores)[:, :num_shots])


def measure_likeness(asked: PooledQueries, *, by: Likeness) -> torch.Tensor:
    """Return the cosines of each query and its candidates, shape [Q, K]."""
    ours, theirs = (
        {"text": table.texts, "picture": table.pictures, "both": table.joined}[by]
        for table in (asked.features, asked.train)
    )
    return (ours @ theirs.mT).gather(1, asked.members)


def rank_pools(asked: PooledQueries, *, by: Likeness) -> torch.Tensor:
    """Return positions in the pool, most similar first, of equal ones the first, shape [Q, K]."""
    return _rank(measure_likeness(asked, by=by))


def reverse_lists(lists: Sequence[List]) -> list[List]:
    """Return lists turned round: what stood first stands next to the query."""
    return [one[::-1] for one in lists]


def _rank(scores: torch.Tensor) -> torch.Tensor:
    return scores.argsort(dim=-1, descending=True, stable=True)


def _draw(pool: List, num_shots: int, seed: int, query: str) -> List:
    _check(num_shots, len(pool))
    rng = random.Random(derive_seed(seed, "random list", query))
    return tuple(rng.sample(pool, len(pool))[:num_shots])


def _find_in_train(asked: PooledQueries, num_shots: int) -> list[List]:
    ids = asked.train.ids
    _check(num_shots, len(ids) - 1)
    ranked = _rank(asked.features.texts @ asked.train.texts.mT)[:, : num_shots + 1].tolist()
    named = [[ids[place] for place in row] for row in ranked]
    return [
        tuple(one for one in row if one != query)[:num_shots]
        for query, row in zip(asked.features.ids, named, strict=True)
    ]


def _check(num_shots: int, num_candidates: int) -> None:
    if not 1 <= num_shots <= num_candidates:
        raise ConfigError(
            "lists of so many shots cannot be chosen",
            got=num_shots,
            expected=f"from 1 to {num_candidates}",
        )
