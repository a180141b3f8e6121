"""Rewards are at work while the reference is scored."""

import threading

import pytest

from groupwise.training.fast.early_rewards import EarlyReward, start_early
from groupwise.training.settings import SpeedSettings

PATIENCE_S = 5


def test_a_reward_is_at_work_while_the_reference_is_scored(grpo, pairs, monkeypatch):
    """Each waits for the other to have begun."""
    begun = {"reward": threading.Event(), "reference": threading.Event()}
    met = {}

    def meet(me, other):
        begun[me].set()
        met.setdefault(me, begun[other].wait(PATIENCE_S))

    def wait(completion_ids, **_):
        meet("reward", "reference")
        return grpo.score(completion_ids)

    stepped = pairs.make(speed=SpeedSettings(shared_prefix="on"), reward=wait, beta=0.1)
    own = stepped.trainer._score

    def score(*given):
        meet("reference", "reward")
        return own(*given)

    monkeypatch.setattr(stepped.trainer, "_score", score)
    stepped.update(grpo.make_rows(3))
    assert met == {"reward": True, "reference": True}


def test_values_and_columns_are_those_of_the_parent(grpo, pairs, keep_order):
    seen = []

    def look(prompts, completions, completion_ids, marker, trainer_state, log_metric, **_):
        seen.append((prompts, completions, completion_ids, marker, trainer_state.global_step))
        log_metric("looked", 1.0)
        return grpo.score(completion_ids)

    rows = [row | {"marker": place} for place, row in enumerate(grpo.make_rows(3))]
    for stepped in pairs.make_both(reward=look, beta=0.1):
        stepped.update(rows)
        assert stepped.list_metrics()["looked"] == [1.0]
    assert seen[0] == seen[1]
    assert seen[0][3] == list(range(6))


def test_what_a_reward_raises_is_raised(grpo, pairs):
    def fail(**_):
        raise ZeroDivisionError("no judge")

    stepped = pairs.make(speed=SpeedSettings(shared_prefix="on"), reward=fail)
    with pytest.raises(ZeroDivisionError, match="no judge"):
        stepped.update(grpo.make_rows(3))


def test_coroutines_are_left_to_the_parent():
    async def wait(**_):
        return []

    class Waits:
        async def __call__(self, **_):
            return []

    waits = Waits()
    assert start_early(wait) is wait
    assert start_early(waits) is waits
    assert isinstance(start_early(print), EarlyReward)


def test_a_call_without_a_start_scores_now():
    reward = EarlyReward(lambda number: number + 1)
    reward.start(number=1)
    assert reward(number=5) == 2
    assert reward(number=5) == 6
