"""Clusters stay whole, counts are exact, and the order of rows decides nothing."""

import random
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from groupwise.core import ConfigError, DataError
from groupwise.data.splits import split_by_shares
from groupwise_recipes.on_task.screenshots import Screenshot, split_by_session

Make = Callable[..., Screenshot]


share_lists = st.lists(st.integers(1, 9), min_size=1, max_size=4)


session_lists = st.lists(
    st.tuples(st.sampled_from(["document", "video", "game", None]), st.integers(1, 4)),
    min_size=1,
    max_size=40,
)


def list_screens(make: Make, sessions: list[tuple[str | None, int]]) -> list[Screenshot]:
    return [
        make(f"{number}-{frame}.png", session=f"s{number}", activity=activity)
        for number, (activity, num_frames) in enumerate(sessions)
        for frame in range(num_frames)
    ]


def name_shares(parts: list[int]) -> dict[str, float]:
    return {f"split{i}": part / sum(parts) for i, part in enumerate(parts)}


@given(session_lists, share_lists, st.integers(0, 99))
def test_sessions_stay_whole_and_counts_are_exact(
    make_screen: Make, sessions: list[tuple[str | None, int]], parts: list[int], seed: int
) -> None:
    screens, shares = list_screens(make_screen, sessions), name_shares(parts)
    assume(min(shares.values()) * len(sessions) >= 1)
    splits = split_by_session(screens, shares=shares, seed=seed)
    sides = {name: {screen.session for screen in split} for name, split in splits.items()}
    assert sum(map(len, sides.values())) == len(sessions) == len(set().union(*sides.values()))
    assert Counter(s for split in splits.values() for s in split) == Counter(screens)
    for name, share in shares.items():
        assert abs(len(sides[name]) - share * len(sessions)) < 1 + 1e-6


@given(session_lists, st.integers(0, 99), st.randoms(use_true_random=False))
def test_the_order_of_rows_changes_no_side(
    make_screen: Make, sessions: list[tuple[str | None, int]], seed: int, rng: random.Random
) -> None:
    screens = list_screens(make_screen, sessions)
    assume(len(sessions) >= 4)
    shares = {"train": 0.5, "test": 0.5}
    first = split_by_session(screens, shares=shares, seed=seed)
    rng.shuffle(screens)
    second = split_by_session(screens, shares=shares, seed=seed)
    assert {name: set(split) for name, split in first.items()} == {
        name: set(split) for name, split in second.items()
    }


def test_activities_are_spread_evenly(make_screen: Make) -> None:
    sessions = [(name, 1) for name in ("document", "video", "game", "shop") for _ in range(20)]
    screens = list_screens(make_screen, sessions)
    for seed in range(10):
        splits = split_by_session(
            screens, shares={"train": 0.7, "dev": 0.1, "test": 0.2}, seed=seed
        )
        for name, num in (("train", 14), ("dev", 2), ("test", 4)):
            counts = Counter(screen.activity for screen in splits[name])
            assert all(abs(counts[activity] - num) <= 1 for activity, _ in sessions)


def test_another_seed_gives_other_sides(make_screen: Make) -> None:
    screens = list_screens(make_screen, [("document", 1)] * 20)
    sides = {
        tuple(
            s.session for s in split_by_session(screens, shares={"a": 0.5, "b": 0.5}, seed=i)["a"]
        )
        for i in range(5)
    }
    assert len(sides) == 5


@pytest.mark.parametrize(
    "shares", [{}, {"a": 0.5}, {"a": 1.5, "b": -0.5}, {"a": 1.0, "b": 0.0}, {"a": float("nan")}]
)
def test_shares_that_are_none_are_refused(make_screen: Make, shares: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="add up to 1"):
        split_by_session([make_screen()], shares=shares, seed=0)


def test_an_empty_split_is_an_error(make_screen: Make) -> None:
    screens = list_screens(make_screen, [("document", 9)] * 3)
    with pytest.raises(DataError, match="'test' would be empty; got 3 cluster"):
        split_by_session(screens, shares={"train": 0.95, "test": 0.05}, seed=0)


@given(
    st.dictionaries(st.text(max_size=4), st.sampled_from(["a", "b", "c"]), min_size=4),
    st.integers(0, 99),
)
def test_kinds_are_about_even_in_every_share(kinds: dict[str, str], seed: int) -> None:
    side = split_by_shares(kinds, shares={"large": 0.75, "small": 0.25}, seed=seed)
    assert side == split_by_shares(
        dict(reversed(kinds.items())), shares={"large": 0.75, "small": 0.25}, seed=seed
    )
    assert set(side) == set(kinds)
    for kind in set(kinds.values()):
        members = [name for name in kinds if kinds[name] == kind]
        num_small = sum(side[name] == "small" for name in members)
        assert abs(num_small - 0.25 * len(members)) <= 1.5
