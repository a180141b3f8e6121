import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.core import Completion, Message, RewardError, Score, make_example
from groupwise.rewards import Reward, SoftOverlong

ITEM = make_example([Message("user", "?")], cluster="g")


def score(length: int, *, max_tokens: int = 100, cache_tokens: int = 20) -> Score:
    reward = SoftOverlong(max_tokens=max_tokens, cache_tokens=cache_tokens)
    return reward(ITEM, Completion("x", tuple(range(length))))


@pytest.mark.parametrize(
    ("length", "value"),
    [(1, 1.0), (80, 1.0), (81, 0.95), (90, 0.5), (99, 0.05), (100, 0.0), (101, 0.0), (5000, 0.0)],
)
def test_the_value_falls_over_the_cache(length: int, value: float) -> None:
    assert score(length).value == pytest.approx(value)


@given(st.integers(1, 300), st.integers(1, 200), st.integers(1, 200))
def test_it_is_the_punishment_of_dapo_shifted_by_one(
    length: int, max_tokens: int, cache_tokens: int
) -> None:
    from trl.rewards import get_soft_overlong_punishment

    cache_tokens = min(cache_tokens, max_tokens)
    [punishment] = get_soft_overlong_punishment(max_tokens, cache_tokens)([[1] * length])
    got = score(length, max_tokens=max_tokens, cache_tokens=cache_tokens)
    assert got.value == pytest.approx(1 + punishment)


@given(st.integers(1, 200))
def test_longer_never_earns_more(length: int) -> None:
    assert score(length + 1).value <= score(length).value


def test_without_token_ids_there_is_no_score() -> None:
    reward = SoftOverlong(max_tokens=10, cache_tokens=5)
    assert reward(ITEM, Completion("some words")) == Score(None, "no token ids")
    assert isinstance(reward, Reward)


@pytest.mark.parametrize(("max_tokens", "cache_tokens"), [(10, 0), (10, 11), (0, 0), (10, -1)])
def test_lengths_that_cannot_work_are_refused(max_tokens: int, cache_tokens: int) -> None:
    with pytest.raises(RewardError, match="cache_tokens must be"):
        SoftOverlong(max_tokens=max_tokens, cache_tokens=cache_tokens)
