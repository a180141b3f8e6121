from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from groupwise.training.fast.round import Groups, Round
from groupwise.training.fast.shared import Trunk

NUMBERS = torch.tensor([0, 0, 1, 1])
ROUND = Groups.of(NUMBERS)


def make_features(counts):
    """Return features of so many pictures, each with a number of its own, on three levels."""
    parts = [torch.full((n + 1, 2), float(n)) for n in range(sum(counts))]
    deep = [[part + 10 * level for part in parts] for level in (1, 2)]
    return SimpleNamespace(pooler_output=tuple(parts), deepstack_features=deep)


def test_features_of_any_of_the_prompts_are_found_again():
    round_ = Round(ROUND)
    assert round_.find_features(ROUND) is None
    round_.keep_features(ROUND, [2, 1], make_features([2, 1]))
    both = round_.find_features(ROUND)
    assert [part[0, 0].item() for part in both.pooler_output] == [0, 1, 2]
    assert [[p[0, 0].item() for p in level] for level in both.deepstack_features] == [
        [10, 11, 12],
        [20, 21, 22],
    ]
    second = round_.find_features(Groups.of(torch.tensor([1])))
    assert [part.shape for part in second.pooler_output] == [(3, 2)]
    assert round_.find_features(Groups.of(torch.tensor([1, 2]))) is None


def test_features_without_deeper_levels():
    round_ = Round(ROUND)
    features = make_features([1, 1])
    del features.deepstack_features
    round_.keep_features(ROUND, [1, 1], features)
    assert len(round_.find_features(ROUND).pooler_output) == 2


def test_a_trunk_is_found_where_every_prompt_and_row_is_known():
    round_ = Round(ROUND)
    first = Groups.of(NUMBERS[:2])
    round_.keep_trunk(first, [0, 1], Trunk(torch.ones(1, 3, 2), torch.ones(2, 2, 2)))
    assert round_.find_trunk(first, [1], prefix=3, tail=2) is not None
    assert round_.find_trunk(first, [0, 1], prefix=3, tail=2) is not None
    assert round_.find_trunk(ROUND, [0, 1], prefix=3, tail=2) is None
    assert round_.find_trunk(first, [0, 2], prefix=3, tail=2) is None


@given(*[st.integers(1, 5)] * 4)
def test_a_trunk_keeps_what_is_real_in_wider_and_narrower_batches(prefix, tail, wide, long):
    """Prompts end where they ended, completions start where they started."""
    round_ = Round(ROUND)
    trunk = Trunk(torch.rand(2, prefix, 3), torch.rand(4, tail, 3))
    round_.keep_trunk(ROUND, range(4), trunk)
    found = round_.find_trunk(ROUND, [3, 1], prefix=wide, tail=long)
    assert found.prefixes.shape == (2, wide, 3)
    assert found.tails.shape == (2, long, 3)
    same = min(prefix, wide)
    assert found.prefixes[:, -same:].equal(trunk.prefixes[:, -same:])
    assert not found.prefixes[:, :-same].any()
    same = min(tail, long)
    assert found.tails[:, :same].equal(trunk.tails[[3, 1], :same])
    assert not found.tails[:, same:].any()


@pytest.mark.parametrize("order", [[2, 3], [3, 2]])
def test_rows_come_in_the_order_asked_for(order):
    round_ = Round(ROUND)
    tails = torch.arange(4.0).view(4, 1, 1)
    round_.keep_trunk(ROUND, range(4), Trunk(torch.rand(2, 1, 1), tails))
    found = round_.find_trunk(Groups.of(NUMBERS[2:]), order, prefix=1, tail=1)
    assert found.tails.flatten().tolist() == order
