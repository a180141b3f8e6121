"""The rival that scores each candidate alone: it learns which products of features pay."""

from dataclasses import replace

import pytest
import torch
from demonstrations import POOL_SIZE, SIZE, make_asked

from groupwise.core import ConfigError
from groupwise_recipes.demo_selection.choosing import choose_by_baseline
from groupwise_recipes.demo_selection.pointwise import (
    choose_by_pointwise,
    fit_pointwise,
    read_pointwise,
    write_pointwise,
)
from groupwise_recipes.demo_selection.recorded_groups import RecordedGroups

ASKED = make_asked()
USEFUL = 3


def record(num_queries: int = 60, *, seed: int = 0, greatest: float = 1.0) -> RecordedGroups:
    """Return lists of two that earn something if one feature is of the query's sign in both."""
    draw = torch.Generator().manual_seed(seed)
    queries = torch.randn(num_queries, SIZE, generator=draw)
    pools = torch.randn(num_queries, POOL_SIZE, SIZE, generator=draw)
    lists = torch.rand(num_queries, 4, POOL_SIZE, generator=draw).argsort(-1)[..., :2]
    alike = (queries[:, None, USEFUL] * pools[..., USEFUL]).gather(1, lists.flatten(1)) > 0
    rewards = alike.view(lists.shape).all(-1) * greatest
    present = torch.ones(num_queries, 4, dtype=torch.bool)
    return RecordedGroups(queries, pools, lists, rewards, present, max_reward=greatest)


def test_the_feature_that_pays_has_the_greatest_weight() -> None:
    weights = fit_pointwise([record(), record(seed=1)])
    assert weights.shape == (SIZE,)
    assert int(weights.argmax()) == USEFUL
    assert weights[USEFUL] > 3 * weights.abs().sort().values[-2]


def test_a_share_of_the_reward_counts_as_much_as_it_is() -> None:
    groups = record()
    assert torch.allclose(fit_pointwise([groups]), fit_pointwise([record(greatest=2.0)]), atol=1e-6)
    shares = [replace(groups, rewards=groups.rewards * share) for share in (0.5, 0.75, 1)]
    half, most, all_of_it = (float(fit_pointwise([one])[USEFUL]) for one in shares)
    assert 0 < half < most < all_of_it


def test_the_size_of_a_feature_does_not_count() -> None:
    groups = record()
    factors = torch.ones(SIZE)
    factors[USEFUL] = 0.01
    small = fit_pointwise([replace(groups, queries=groups.queries * factors)])
    assert torch.allclose(small * factors, fit_pointwise([groups]), atol=1e-5)


def test_lists_that_could_not_be_scored_and_features_that_never_differ_play_no_part() -> None:
    groups = record()
    present = torch.arange(4).expand(60, 4) < 3
    fewer = RecordedGroups(
        groups.queries,
        groups.pools,
        groups.lists[:, :3],
        groups.rewards[:, :3],
        present[:, :3],
    )
    absent = RecordedGroups(groups.queries, groups.pools, groups.lists, groups.rewards, present)
    assert torch.equal(fit_pointwise([fewer]), fit_pointwise([absent]))
    constant = torch.zeros(SIZE)
    constant[0] = 1
    groups.queries[:, 0] = groups.pools[..., 0] = 0.5
    assert fit_pointwise([groups])[0] == 0


def test_candidates_of_the_pool_are_ranked_by_weighted_products() -> None:
    alike = choose_by_pointwise(torch.ones(SIZE), ASKED, num_shots=3)
    assert alike == choose_by_baseline("nearest_both", ASKED, num_shots=3)
    weights = torch.randn(SIZE, generator=torch.Generator().manual_seed(1))
    [first] = {one[:1] for one in choose_by_pointwise(weights, ASKED, num_shots=2)[:1]}
    scores = {
        ASKED.train.ids[place]: float(
            (weights * ASKED.features.joined[0] * ASKED.train.joined[place]).sum()
        )
        for place in ASKED.pools.members[ASKED.queries[0].id]
    }
    assert first == (max(scores, key=lambda one: scores[one]),)
    with pytest.raises(ConfigError, match=f"expected from 1 to {POOL_SIZE}"):
        choose_by_pointwise(weights, ASKED, num_shots=POOL_SIZE + 1)


def test_weights_are_read_as_they_were_written(tmp_path) -> None:
    weights = fit_pointwise([record()])
    write_pointwise(weights, tmp_path)
    assert torch.equal(read_pointwise(tmp_path), weights)
