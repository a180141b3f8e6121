from dataclasses import replace

import pytest
import torch
from recorded_lists import POOL, make_list, make_query
from torch.nn.functional import normalize

from groupwise.core import DataError, RewardError
from groupwise_recipes.demo_selection.candidate_groups import make_groups
from groupwise_recipes.demo_selection.candidates import Recording
from groupwise_recipes.demo_selection.features import FeatureTable

FIRST = make_query("1", [make_list((103, 100), "a"), make_list((100, 103), None), make_list()])
SECOND = make_query("2", [make_list((101, 107), "blue")], POOL[::-1])


def make_table(ids, seed):
    drawn = torch.randn(2, len(ids), 6, generator=torch.Generator().manual_seed(seed))
    pictures, texts = normalize(drawn, dim=-1)
    return FeatureTable(tuple(map(str, ids)), pictures, texts, "digest")


QUERIES, TRAIN = make_table([2, 1, 3], 0), make_table([99, *POOL], 1)


def make(*queries, mode="separated", asked=QUERIES, train=TRAIN):
    return make_groups(Recording(tuple(queries)), queries=asked, train=train, mode=mode)


def test_lists_are_positions_in_the_pool_with_rewards_and_features():
    groups = make(FIRST, SECOND)
    assert groups.present.tolist() == [[True, False, True], [True, False, False]]
    assert groups.lists[0, 0].tolist() == [3, 0]
    assert groups.lists[1, 0].tolist() == [6, 0]
    assert groups.rewards[0].nan_to_num(-1).tolist() == pytest.approx([2.3, -1, 3])
    assert groups.rewards[1, 0] == 0
    assert groups.max_reward == 3
    assert groups.queries.equal(QUERIES.joined[[1, 0]])
    assert groups.pools[0].equal(TRAIN.joined[1:])
    assert groups.pools[1].equal(TRAIN.joined[1:].flip(0))


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"queries": [replace(FIRST, pool=None)]}, DataError, "pool of query 1 was not recorded"),
        (
            {"queries": [FIRST, replace(SECOND, pool=(*POOL, 99))]},
            DataError,
            r"different sizes; got \[8, 9\]",
        ),
        ({"queries": [replace(FIRST, query_id="7")]}, DataError, "no features: query 7"),
        ({"train": make_table(POOL[1:], 1)}, DataError, "1 of 8 have no features: train item 100"),
        ({"queries": [replace(FIRST, candidates=())]}, DataError, "do not fit together"),
        ({"mode": "both"}, RewardError, "no such reward mode"),
    ],
)
def test_what_cannot_be_trained_on_is_named(given, error, words):
    with pytest.raises(error, match=words):
        make(*given.pop("queries", [FIRST]), **given)
