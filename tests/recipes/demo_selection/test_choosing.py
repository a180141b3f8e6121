"""Ways of choosing lists: what each looks at, and that all give lists of different candidates."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from demonstrations import (
    NUM_TRAIN,
    POOL_SIZE,
    QUERIES,
    TRAIN,
    make_asked,
    make_selector,
    make_table,
)
from hypothesis import given
from hypothesis import strategies as st

from groupwise.core import ConfigError, DataError
from groupwise_recipes.demo_selection.choosing import (
    BASELINES,
    PooledQueries,
    choose_by_baseline,
    choose_by_selector,
    reverse_lists,
)
from groupwise_recipes.demo_selection.pools import draw_pools

ASKED = make_asked()
FROM_POOLS = [name for name in BASELINES if name not in ("none", "knn_few_shot")]


@given(st.sampled_from(FROM_POOLS), st.integers(1, POOL_SIZE), st.integers(0, 3))
def test_lists_have_different_candidates_of_the_pool(baseline, num_shots, seed):
    lists = choose_by_baseline(baseline, ASKED, num_shots=num_shots, seed=seed)
    for query, chosen in zip(ASKED.queries, lists, strict=True):
        assert len(set(chosen)) == len(chosen) == num_shots
        assert set(chosen) <= set(ASKED.name_pool(query.id))
    fewer = choose_by_baseline(baseline, ASKED, num_shots=1, seed=seed)
    assert [one[:1] for one in lists] == fewer


@pytest.mark.parametrize(
    ("baseline", "vectors"),
    [("nearest_text", "texts"), ("nearest_picture", "pictures"), ("nearest_both", "joined")],
)
def test_the_nearest_of_the_pool_come_first(baseline, vectors):
    lists = choose_by_baseline(baseline, ASKED, num_shots=3)
    ours, theirs = getattr(ASKED.features, vectors), getattr(ASKED.train, vectors)
    for row, (query, chosen) in enumerate(zip(ASKED.queries, lists, strict=True)):
        places = ASKED.pools.members[query.id]
        ordered = sorted(places, key=lambda place: -float(ours[row] @ theirs[place]))
        assert chosen == tuple(ASKED.train.ids[place] for place in ordered[:3])


def test_mmices_takes_texts_among_the_nearest_pictures():
    lists = choose_by_baseline("mmices", ASKED, num_shots=2, num_near=3)
    near = choose_by_baseline("nearest_picture", ASKED, num_shots=3)
    by_text = choose_by_baseline("nearest_text", ASKED, num_shots=POOL_SIZE)
    for chosen, allowed, ordered in zip(lists, near, by_text, strict=True):
        assert chosen == tuple(one for one in ordered if one in allowed)[:2]


def test_knn_few_shot_gives_what_dspy_does():
    lists = choose_by_baseline("knn_few_shot", ASKED, num_shots=4)
    for row, chosen in enumerate(lists):
        scores = np.dot(ASKED.train.texts.numpy(), ASKED.features.texts[row].numpy())
        assert chosen == tuple(ASKED.train.ids[place] for place in scores.argsort()[-4:][::-1])
    assert not all(
        set(chosen) <= set(ASKED.name_pool(query.id))
        for query, chosen in zip(ASKED.queries, lists, strict=True)
    )


def test_knn_few_shot_never_shows_the_query_itself():
    train = make_table(TRAIN, seed=1)
    pools = draw_pools(train, train, sampler="random", size=4)
    asked = PooledQueries(tuple(TRAIN), train, train, pools)
    lists = choose_by_baseline("knn_few_shot", asked, num_shots=NUM_TRAIN - 1)
    for query, chosen in zip(TRAIN, lists, strict=True):
        assert set(chosen) == {one.id for one in TRAIN} - {query.id}


def test_random_lists_follow_from_the_seed_and_the_query():
    chosen = choose_by_baseline("random", ASKED, num_shots=4, seed=1)
    assert chosen == choose_by_baseline("random", ASKED, num_shots=4, seed=1)
    assert chosen != choose_by_baseline("random", ASKED, num_shots=4, seed=2)
    positions = [
        tuple(map(ASKED.name_pool(query.id).index, one))
        for query, one in zip(ASKED.queries, chosen, strict=True)
    ]
    assert len(set(positions)) > 1
    assert choose_by_baseline("none", ASKED, num_shots=4) == [()] * len(QUERIES)


def test_a_selector_chooses_what_it_scores_highest():
    selector = make_selector().train()
    lists = choose_by_selector(selector, ASKED, num_shots=3)
    pools = ASKED.train.joined[ASKED.members]
    order = selector.score(ASKED.features.joined, pools).argsort(-1, descending=True)
    assert lists == ASKED.name_lists(order[:, :3])
    assert reverse_lists(lists) == [one[::-1] for one in lists] != lists


def test_too_many_shots_are_refused():
    for baseline, limit in (
        ("random", 8),
        ("nearest_both", 8),
        ("mmices", 8),
        ("knn_few_shot", 23),
    ):
        with pytest.raises(ConfigError, match=f"got {limit + 1}; expected from 1 to {limit}"):
            choose_by_baseline(baseline, ASKED, num_shots=limit + 1)
    with pytest.raises(ConfigError, match="expected from 1 to 3"):
        choose_by_baseline("mmices", ASKED, num_shots=4, num_near=3)


def test_parts_that_do_not_belong_together_are_refused():
    with pytest.raises(DataError, match="another order"):
        replace(ASKED, queries=ASKED.queries[::-1])
    members = dict(list(ASKED.pools.members.items())[1:])
    with pytest.raises(DataError, match="1 queries have no pool"):
        replace(ASKED, pools=replace(ASKED.pools, members=members))
    assert torch.equal(ASKED.members[0], torch.tensor(ASKED.pools.members[QUERIES[0].id]))
