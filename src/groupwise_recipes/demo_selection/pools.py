"""Pools: the K demonstrations among which the list of a query is picked."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from groupwise.core import ConfigError, derive_seed, digest_json
from groupwise_recipes.demo_selection.features import FeatureTable

Sampler = Literal["random", "text", "picture", "mixed"]


@dataclass(frozen=True)
class Pools:
    """The pool of each query.

    Attributes:
        sampler: that drew them.
        members: positions among the train items by the id of the query, K different ones each;
            random ones in drawn order, others the most similar first.
        digest: of the sampler with its settings and of the train items and their features: pools of
            training and of inference are drawn alike exactly if their digests are the same.
    """

    sampler: Sampler
    members: dict[str, tuple[int, ...]]
    digest: str


def draw_pools(
    queries: FeatureTable,
    train: FeatureTable,
    *,
    sampler: Sampler,
    size: int = 64,
    seed: int = 0,
) -> Pools:
    """Draw the pool of each query; an item is never in its own."""
    num_others = len(train.ids) - bool(set(queries.ids) & set(train.ids))
    if not 1 <= size <= num_others:
        raise ConfigError(
            "the pool has a size that cannot be drawn",
            got=size,
            expected=f"from 1 to {num_others}",
        )
    if sampler == "random":
        drawn = [_draw_random(one, train.ids, size=size, seed=seed) for one in queries.ids]
    else:
        drawn = _find_similar(queries, train, sampler=sampler, size=size)
    members = dict(zip(queries.ids, drawn, strict=True))
    settings = [seed] if sampler == "random" else []
    digest = digest_json([sampler, size, settings, train.digest])
    return Pools(sampler, members, digest)


def _draw_random(query: str, ids: Sequence[str], *, size: int, seed: int) -> tuple[int, ...]:
    rng = random.Random(derive_seed(seed, "pool", query))
    others = [place for place, one in enumerate(ids) if one != query]
    return tuple(rng.sample(others, size))


def _find_similar(
    queries: FeatureTable, train: FeatureTable, *, sampler: Sampler, size: int
) -> list[tuple[int, ...]]:
    places = {one: place for place, one in enumerate(train.ids)}
    own = [(row, places[one]) for row, one in enumerate(queries.ids) if one in places]
    by_text = queries.texts @ train.texts.mT
    by_picture = queries.pictures @ train.pictures.mT
    if sampler == "mixed":
        scores = queries.joined @ train.joined.mT
    else:
        scores = by_picture if sampler == "picture" else by_text
    for row, place in own:
        scores[row, place] = -torch.inf
    return [tuple(row) for row in _rank(scores)[:, :size].tolist()]


def _rank(scores: torch.Tensor) -> torch.Tensor:
    """Return positions by falling score; of equal ones the first comes first."""
    return scores.argsort(dim=-1, descending=True, stable=True)
