"""Rewards are called as TRL calls them; only what says it may is at work beside scoring."""

import asyncio
import signal
import threading
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from math_verify import parse, verify

from groupwise.training.fast.early_rewards import EarlyReward, start_early
from groupwise.training.settings import SpeedSettings

PATIENCE_S = 5
ON = SpeedSettings(shared_prefix="on")
BESIDE = SpeedSettings(shared_prefix="on", rewards_beside_scoring=True)


def declare(function):
    function.runs_beside_scoring = True
    return function


def test_rewards_are_called_in_order_on_the_main_thread_after_scoring(grpo, pairs, monkeypatch):
    """One at a time, even where they say that they need not be and are only not asked to."""
    events = []

    def make(name):
        @declare
        def reward(completion_ids, **_):
            events.append((name, threading.current_thread() is threading.main_thread()))
            return grpo.score(completion_ids)

        return reward

    stepped = pairs.make(speed=ON, reward=[make("first"), make("second")], beta=0.1)
    own = stepped.trainer._score
    monkeypatch.setattr(
        stepped.trainer, "_score", lambda *given: events.append(("scored", True)) or own(*given)
    )
    stepped.update(grpo.make_rows(3))
    assert events == [(name, True) for name in ("scored", "first", "second", "scored")]


@dataclass
class Setting:
    """Where rewards are called.

    Attributes:
        stepped: the trainer.
        scored: set when old policy or reference have been scored.
    """

    stepped: Any = None
    scored: threading.Event = field(default_factory=threading.Event)


@pytest.fixture
def find_rewards(grpo, pairs, keep_order):
    """Return what rewards earned with the parent class and with ours."""

    def run(make, *, num_updates=1):
        found = []
        for speed in (None, ON):
            here, earned = Setting(), []
            rewards = [note(reward, earned) for reward in make(here)]
            here.stepped = pairs.make(trained="fresh", speed=speed, reward=rewards, beta=0.1)
            here.stepped.say(grpo.write_completions(6, end=2))
            tell_when_scored(here)
            for seed in range(num_updates):
                here.stepped.update(grpo.make_rows(3), seed=seed)
            found.append(earned)
        return found

    return run


def note(reward, earned):
    def call(**given):
        earned.append(reward(**given))
        return earned[-1]

    return call


def tell_when_scored(here):
    own = here.stepped.trainer._get_per_token_logps_and_entropies

    def score(*given, **named):
        try:
            return own(*given, **named)
        finally:
            here.scored.set()

    here.stepped.trainer._get_per_token_logps_and_entropies = score


def limit_time(_):
    """Pays nothing where it cannot."""

    def reward(completion_ids, **_):
        try:
            before = signal.signal(signal.SIGALRM, signal.SIG_DFL)
        except ValueError:
            return [0.0] * len(completion_ids)
        signal.alarm(PATIENCE_S)
        try:
            return [1.0 + len(ids) for ids in completion_ids]
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, before)

    return [reward]


def verify_as_documented(_):
    def reward(completion_ids, **_):
        gold = parse("$4$")
        return [float(verify(gold, parse(f"${len(ids)}$"))) for ids in completion_ids]

    return [reward]


def await_on_own_loop(_):
    def reward(completion_ids, **_):
        async def wait():
            return [float(len(ids)) for ids in completion_ids]

        return asyncio.get_event_loop().run_until_complete(wait())

    return [reward]


def ask_base(here):
    """By the policy with its adapter off, until somebody else has switched it on."""

    def reward(completion_ids, **_):
        model = here.stepped.trainer.model
        with torch.no_grad(), model.disable_adapter():
            here.scored.wait(PATIENCE_S)
            return [float(model(torch.tensor([ids])).logits.mean()) for ids in completion_ids]

    return [reward]


def share_tokenizer(here):
    """Truncation is a state of the tokenizer."""
    has_begun = threading.Event()

    def find_tokenizer():
        return here.stepped.trainer.processing_class.backend_tokenizer

    def truncate(completion_ids, **_):
        find_tokenizer().enable_truncation(1)
        has_begun.set()
        here.scored.wait(PATIENCE_S)
        find_tokenizer().no_truncation()
        return [0.0] * len(completion_ids)

    def count(completion_ids, **_):
        has_begun.wait(PATIENCE_S)
        return [float(len(find_tokenizer().encode("is this" * len(i)))) for i in completion_ids]

    return [truncate, count]


@pytest.fixture
def own_loop():
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()


@pytest.mark.usefixtures("own_loop")
@pytest.mark.parametrize(
    "make",
    [
        limit_time,
        pytest.param(verify_as_documented, marks=pytest.mark.slow),
        await_on_own_loop,
        pytest.param(ask_base, marks=pytest.mark.slow),
        pytest.param(share_tokenizer, marks=pytest.mark.slow),
    ],
)
def test_rewards_that_are_not_for_threads(find_rewards, make):
    parents, ours = find_rewards(make, num_updates=3)
    assert ours == parents
    assert len({value for values in ours for value in values}) > 1


def test_values_and_columns_are_those_of_the_parent(grpo, pairs, keep_order):
    for speed in (ON, BESIDE):
        seen = []

        @declare
        def look(
            prompts, completions, completion_ids, marker, trainer_state, log_metric, seen=seen, **_
        ):
            seen.append((prompts, completions, completion_ids, marker, trainer_state.global_step))
            log_metric("looked", 1.0)
            return grpo.score(completion_ids)

        rows = [row | {"marker": place} for place, row in enumerate(grpo.make_rows(3))]
        for stepped in pairs.make_both(reward=look, beta=0.1, speed=speed):
            stepped.update(rows)
            assert stepped.list_metrics()["looked"] == [1.0]
        assert seen[0] == seen[1]
        assert seen[0][3] == list(range(6))


def test_a_reward_that_may_is_at_work_while_the_reference_is_scored(grpo, pairs, monkeypatch):
    """Each waits for the other to have begun."""
    begun = {"reward": threading.Event(), "reference": threading.Event()}
    met = {}

    def meet(me, other):
        begun[me].set()
        met.setdefault(me, begun[other].wait(PATIENCE_S))

    @declare
    def wait(completion_ids, **_):
        meet("reward", "reference")
        return grpo.score(completion_ids)

    stepped = pairs.make(speed=BESIDE, reward=wait, beta=0.1)
    own = stepped.trainer._score

    def score(*given):
        meet("reference", "reward")
        return own(*given)

    monkeypatch.setattr(stepped.trainer, "_score", score)
    stepped.update(grpo.make_rows(3))
    assert met == {"reward": True, "reference": True}


def test_a_reward_that_does_not_say_so_stays_on_the_main_thread(grpo, pairs):
    threads = []

    def look(completion_ids, **_):
        threads.append(threading.current_thread())
        return grpo.score(completion_ids)

    pairs.make(speed=BESIDE, reward=look).update(grpo.make_rows(3))
    assert threads == [threading.main_thread()]


def test_what_a_reward_raises_is_raised(grpo, pairs):
    @declare
    def fail(**_):
        raise ZeroDivisionError("no judge")

    stepped = pairs.make(speed=BESIDE, reward=fail)
    with pytest.raises(ZeroDivisionError, match="no judge"):
        stepped.update(grpo.make_rows(3))


def test_coroutines_are_left_to_the_parent():
    @declare
    async def wait(**_):
        return []

    class Waits:
        runs_beside_scoring = True

        async def __call__(self, **_):
            return []

    waits = Waits()
    assert start_early(wait) is wait
    assert start_early(waits) is waits
    assert start_early(print) is print
    assert isinstance(start_early(declare(lambda **_: [])), EarlyReward)


def test_other_completions_than_those_begun_are_scored_now():
    """A round that failed leaves what it began; nobody gets its values later."""
    reward = EarlyReward(lambda completion_ids: [len(ids) for ids in completion_ids])
    begun, other = [[1]], [[1, 2]]
    reward.start(completion_ids=begun)
    assert reward(completion_ids=begun) == [1]
    reward.start(completion_ids=begun)
    assert reward(completion_ids=other) == [2]
    assert reward(completion_ids=other) == [2]
