"""Recorded candidates and features, put together as what the selector is trained on."""

from collections.abc import Iterable

import torch

from groupwise.core import DataError
from groupwise_recipes.demo_selection.candidates import Recording
from groupwise_recipes.demo_selection.conditions import ItemId
from groupwise_recipes.demo_selection.features import FeatureTable
from groupwise_recipes.demo_selection.recorded_groups import (
    MAX_REWARDS,
    RecordedGroups,
    combine_rewards,
)
from groupwise_recipes.demo_selection.settings import RewardMode


def make_groups(
    recording: Recording, *, queries: FeatureTable, train: FeatureTable, mode: RewardMode
) -> RecordedGroups:
    """Return the groups of a recording, in the order of its queries.

    Lists whose evaluation failed are not present.
    """
    pools = [query.require_pool() for query in recording.queries]
    sizes = {len(pool) for pool in pools}
    if len(sizes) > 1:
        raise DataError("pools have different sizes", got=sorted(sizes), expected="one K")
    places = [_find_places(pool, train, "train item") for pool in pools]
    asked = _find_places((query.query_id for query in recording.queries), queries, "query")
    lists, hard, soft, present = _list_results(recording)
    return RecordedGroups(
        queries=queries.joined[asked],
        pools=train.joined[torch.tensor(places)],
        lists=lists,
        rewards=combine_rewards(hard, soft, mode=mode),
        present=present,
        max_reward=MAX_REWARDS[mode],
    )


def _find_places(ids: Iterable[ItemId], table: FeatureTable, what: str) -> list[int]:
    places = {one: place for place, one in enumerate(table.ids)}
    wanted = [str(one) for one in ids]
    missing = [one for one in wanted if one not in places]
    if missing:
        raise DataError(f"{len(missing)} of {len(wanted)} have no features: {what} {missing[0]}")
    return [places[one] for one in wanted]


def _list_results(
    recording: Recording,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return lists [Q, G, S], hard and soft values [Q, G], and which of them there are."""
    groups = [query.candidates for query in recording.queries]
    length = max((len(one.ids) for group in groups for one in group), default=1)
    shape = (len(groups), max(map(len, groups)))
    lists = torch.zeros((*shape, length), dtype=torch.long)
    hard, soft, present = torch.zeros(shape), torch.zeros(shape), torch.zeros(shape).bool()
    for row, query in enumerate(recording.queries):
        for place, one in enumerate(query.candidates):
            values = recording.read_values(one)
            if values is not None:
                lists[row, place] = torch.tensor(query.find_positions(one))
                hard[row, place], soft[row, place] = values
                present[row, place] = True
    return lists, hard, soft, present
