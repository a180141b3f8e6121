"""Pools: K different items, never the query itself, and what they were drawn by."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import normalize

from groupwise.core import ConfigError
from groupwise_recipes.demo_selection.features import FeatureTable
from groupwise_recipes.demo_selection.pools import draw_pools

SAMPLERS = ("random", "text", "picture", "mixed", "mmices")


def make_table(num_items, *, seed=0, name="item"):
    drawn = torch.randn(2, num_items, 6, generator=torch.Generator().manual_seed(seed))
    pictures, texts = normalize(drawn, dim=-1)
    ids = tuple(f"{name}-{number}" for number in range(num_items))
    return FeatureTable(ids, pictures, texts, f"digest of {seed}")


@given(st.sampled_from(SAMPLERS), st.integers(2, 20), st.integers(0, 5), st.data())
def test_a_pool_has_different_items_and_never_the_query(sampler, num_items, seed, data):
    train = make_table(num_items, seed=seed)
    size = data.draw(st.integers(1, num_items - 1))
    pools = draw_pools(train, train, sampler=sampler, size=size, num_near=size, seed=seed)
    for place, query in enumerate(train.ids):
        members = pools.members[query]
        assert len(set(members)) == size
        assert set(members) <= set(range(num_items)) - {place}


@given(st.sampled_from(SAMPLERS), st.integers(0, 5))
def test_the_pool_of_a_query_does_not_depend_on_the_other_queries(sampler, seed):
    train, queries = make_table(12, seed=seed), make_table(5, seed=seed + 50, name="query")
    whole = draw_pools(queries, train, sampler=sampler, size=4, num_near=6, seed=seed)
    one = FeatureTable(queries.ids[2:3], queries.pictures[2:3], queries.texts[2:3], "")
    alone = draw_pools(one, train, sampler=sampler, size=4, num_near=6, seed=seed)
    assert alone.members["query-2"] == whole.members["query-2"]
    assert alone.digest == whole.digest


def test_similar_items_come_by_what_the_sampler_looks_at():
    train, queries = make_table(9), make_table(3, seed=1, name="query")
    scores = {
        "text": queries.texts @ train.texts.mT,
        "picture": queries.pictures @ train.pictures.mT,
        "mixed": queries.joined @ train.joined.mT,
    }
    for sampler, expected in scores.items():
        drawn = draw_pools(queries, train, sampler=sampler, size=4).members
        best = expected.topk(4).indices.tolist()
        assert [drawn[one] for one in queries.ids] == [tuple(row) for row in best]


def test_mmices_takes_the_nearest_texts_among_the_nearest_pictures():
    train, queries = make_table(9), make_table(3, seed=1, name="query")
    drawn = draw_pools(queries, train, sampler="mmices", size=2, num_near=4).members
    near = (queries.pictures @ train.pictures.mT).topk(4).indices.tolist()
    texts = queries.texts @ train.texts.mT
    for row, query in enumerate(queries.ids):
        by_text = sorted(near[row], key=lambda place, row=row: -texts[row, place])
        assert drawn[query] == tuple(by_text[:2])


def test_equally_similar_items_keep_their_order():
    train = make_table(8)
    same = replace(train, texts=train.texts[:1].expand(8, -1))
    assert draw_pools(same, same, sampler="text", size=3).members["item-1"] == (0, 2, 3)


def test_the_digest_tells_pools_apart_that_are_drawn_otherwise():
    train = make_table(9)
    named = {"size": 3, "num_near": 5}
    digests = [draw_pools(train, train, sampler=one, **named).digest for one in SAMPLERS]
    changed = [
        draw_pools(train, train, sampler="random", **named, seed=1),
        draw_pools(train, train, sampler="random", size=4),
        draw_pools(train, train, sampler="mmices", size=3, num_near=6),
        draw_pools(train, make_table(9, seed=2), sampler="text", size=3),
    ]
    digests += [pools.digest for pools in changed]
    assert len(set(digests)) == len(digests)
    seeded = [draw_pools(train, train, sampler="text", size=3, seed=seed) for seed in (0, 1)]
    assert seeded[0] == seeded[1]


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ({"sampler": "random", "size": 9}, "got 9; expected from 1 to 8"),
        ({"sampler": "text", "size": 0}, "got 0; expected from 1 to 8"),
        ({"sampler": "mmices", "size": 6, "num_near": 5}, "got 6; expected from 1 to 5"),
    ],
)
def test_a_pool_that_cannot_be_drawn_is_refused(named, expected):
    train = make_table(9)
    with pytest.raises(ConfigError, match=expected):
        draw_pools(train, train, **named)
