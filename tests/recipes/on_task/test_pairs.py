"""Pairs are balanced, and a task alone says nothing."""

import random
from collections import Counter
from collections.abc import Callable
from itertools import groupby
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from real_data import find_real

from groupwise.core import ConfigError, DataError, read_jsonl
from groupwise_recipes.on_task.pairs import Pair, make_pairs
from groupwise_recipes.on_task.screenshots import Screenshot

Make = Callable[..., Screenshot]


ACTIVITIES = ["document", "video", "game", "shop", "travel"]


sets_of_sessions = st.lists(
    st.tuples(st.sampled_from(ACTIVITIES), st.integers(1, 5)), min_size=5, max_size=25
).filter(
    lambda sessions: max(Counter(activity for activity, _ in sessions).values()) < len(sessions) - 2
)


modes = st.sampled_from(["own", "activity"])


def list_screens(make: Make, sessions: list[tuple[str, int]]) -> list[Screenshot]:
    return [
        make(f"{n}-{i}.png", session=f"s{n}", task=f"{activity} task {n}", activity=activity)
        for n, (activity, num_frames) in enumerate(sessions)
        for i in range(num_frames)
    ]


def count_labels(pairs: list[Pair]) -> tuple[int, int]:
    counts = Counter(pair.label for pair in pairs)
    return counts["on-task"], counts["off-task"]


@given(sets_of_sessions, st.integers(0, 99), st.integers(1, 4), modes)
def test_pairs_are_balanced_and_off_tasks_come_from_other_activities(
    make_screen: Make,
    sessions: list[tuple[str, int]],
    seed: int,
    num: int,
    mode: Literal["own", "activity"],
) -> None:
    screens = list_screens(make_screen, sessions)
    pairs = make_pairs(screens, seed=seed, pairs_per_screen=num, on_tasks=mode)
    on, off = count_labels(pairs)
    assert len(pairs) == on + off == len(screens) * num
    assert 0 <= on - off <= (1 if num % 2 else 0)
    own = {screen.session: screen for screen in screens}
    for pair in pairs:
        donor = own[pair.task_session]
        assert (pair.task, pair.task_activity) == (donor.task, donor.activity)
        assert (pair.label == "on-task") == (pair.screen.activity == donor.activity)
        if mode == "own" and pair.label == "on-task":
            assert pair.task_session == pair.screen.session
    met = Counter((pair.screen, pair.task) for pair in pairs if pair.label == "off-task")
    assert set(met.values()) <= {1}


@given(sets_of_sessions, st.integers(0, 99), modes, st.randoms(use_true_random=False))
def test_the_order_of_rows_changes_nothing(
    make_screen: Make,
    sessions: list[tuple[str, int]],
    seed: int,
    mode: Literal["own", "activity"],
    rng: random.Random,
) -> None:
    screens = list_screens(make_screen, sessions)
    pairs = make_pairs(screens, seed=seed, pairs_per_screen=3, on_tasks=mode)
    rng.shuffle(screens)
    assert make_pairs(screens, seed=seed, pairs_per_screen=3, on_tasks=mode) == pairs


@given(sets_of_sessions, st.integers(0, 99), modes)
def test_a_text_alone_says_nothing_where_no_activity_has_the_majority(
    make_screen: Make,
    sessions: list[tuple[str, int]],
    seed: int,
    mode: Literal["own", "activity"],
) -> None:
    screens = list_screens(make_screen, sessions)
    sizes = Counter(screen.activity for screen in screens)
    pairs = make_pairs(screens, seed=seed, on_tasks=mode)
    on = Counter(pair.task for pair in pairs if pair.label == "on-task")
    off = Counter(pair.task for pair in pairs if pair.label == "off-task")
    if max(sizes.values()) * 2 <= len(screens):
        assert on == off
    else:
        largest = max(sizes, key=lambda activity: sizes[activity])
        missing = {task for task in on if off[task] < on[task]}
        assert all(task.startswith(f"{largest} ") for task in missing)


def test_another_seed_gives_other_partners_and_another_order(make_screen: Make) -> None:
    screens = list_screens(make_screen, [(activity, 4) for activity in ACTIVITIES * 2])
    made = [make_pairs(screens, seed=seed) for seed in range(3)]
    partners = [{(p.screen, p.task) for p in pairs} for pairs in made]
    assert partners[0] != partners[1] != partners[2] != partners[0]
    orders = [[pair.screen for pair in pairs] for pairs in made]
    assert orders[0] != orders[1]


def test_pairs_of_a_screen_stand_together(make_screen: Make) -> None:
    screens = list_screens(make_screen, [(activity, 4) for activity in ACTIVITIES])
    pairs = make_pairs(screens, seed=0, pairs_per_screen=4)
    runs = [screen for screen, _ in groupby(pairs, key=lambda pair: pair.screen)]
    assert len(runs) == len(set(runs)) == len(screens)


def test_on_tasks_of_the_activity_are_every_second_ones(make_screen: Make) -> None:
    screens = list_screens(make_screen, [(activity, 2) for activity in ACTIVITIES * 6])
    pairs = make_pairs(screens, seed=0, on_tasks="activity", pairs_per_screen=4)
    on = [pair for pair in pairs if pair.label == "on-task"]
    own = sum(pair.task_session == pair.screen.session for pair in on)
    assert len(on) == 120
    assert 60 <= own <= 75


def test_screens_with_a_label_are_used_as_they_are(make_screen: Make) -> None:
    judged = [
        make_screen("j0.png", session="j0", label="on-task"),
        make_screen("j1.png", session="j1", label="off-task", activity="judged", task="judged"),
    ]
    screens = list_screens(make_screen, [("document", 1), ("video", 1)])
    pairs = make_pairs([*judged, *screens], seed=0, pairs_per_screen=2)
    kept = {p.screen.session: p.label for p in pairs if p.screen.label is not None}
    assert kept == {"j0": "on-task", "j1": "off-task"}
    assert len(pairs) == 2 + 4
    assert [p.screen.session for p in pairs if p.task == "judged"] == ["j1"]


def test_an_equal_text_of_another_activity_is_no_off_task(make_screen: Make) -> None:
    screens = [
        make_screen("a.png", session="a", task="Read the news", activity="news"),
        make_screen("b.png", session="b", task="read  THE news", activity="document"),
        make_screen("c.png", session="c", task="Play chess", activity="game"),
    ]
    for seed in range(10):
        for pair in make_pairs(screens, seed=seed):
            if pair.label == "off-task" and pair.screen.session in "ab":
                assert pair.task == "Play chess"


def check_own_tasks(pairs: list[Pair]) -> None:
    for pair in pairs:
        assert (pair.label == "on-task") == (pair.task_session == pair.screen.session)


def test_a_session_is_no_partner_of_itself(make_screen: Make) -> None:
    screens = [
        make_screen("a.png", session="a", task="Play chess", activity="game"),
        make_screen("b.png", session="a", task="Write a letter", activity="document"),
        make_screen("c.png", session="c", task="Watch a film", activity="video"),
    ]
    for seed in range(10):
        check_own_tasks(make_pairs(screens, seed=seed))


def test_without_activities_the_partner_is_another_session(make_screen: Make) -> None:
    screens = [
        make_screen(f"{i}.png", session=f"s{i // 2}", task=f"task {i // 2}", activity=None)
        for i in range(20)
    ]
    check_own_tasks(make_pairs(screens, seed=0, on_tasks="activity"))


def test_too_few_other_tasks_are_an_error_that_says_what_to_do(make_screen: Make) -> None:
    alone = list_screens(make_screen, [("document", 3), ("document", 2)])
    with pytest.raises(
        DataError, match=r"activity document\); give sessions with other activities"
    ):
        make_pairs(alone, seed=0)
    two = list_screens(make_screen, [("document", 3), ("video", 2)])
    assert len(make_pairs(two, seed=0)) == 10
    with pytest.raises(DataError, match="lower pairs_per_screen"):
        make_pairs(two, seed=0, pairs_per_screen=4)


def test_settings_that_are_none_are_refused(make_screen: Make) -> None:
    with pytest.raises(ConfigError, match="expected >= 1"):
        make_pairs([make_screen()], seed=0, pairs_per_screen=0)
    with pytest.raises(ConfigError, match="own or activity"):
        make_pairs([make_screen()], seed=0, on_tasks="other")  # pyright: ignore
    with pytest.raises(DataError, match="outside the set; got yes"):
        make_pairs([make_screen(label="yes")], seed=0)


def test_no_screens_give_no_pairs() -> None:
    assert make_pairs([], seed=0, pairs_per_screen=3) == []


def test_the_real_set_is_balanced_in_every_fold(make_screen: Make) -> None:
    rows = read_jsonl(find_real("screenagent") / "index.jsonl")
    for fold in sorted({found["fold"] for found in rows}):
        screens = [
            make_screen(r["image"], session=r["session"], task=r["task_en"], activity=r["activity"])
            for r in rows
            if r["fold"] == fold
        ]
        pairs = make_pairs(screens, seed=0)
        assert count_labels(pairs) == (len(screens), len(screens))
        on = Counter(pair.task for pair in pairs if pair.label == "on-task")
        off = Counter(pair.task for pair in pairs if pair.label == "off-task")
        assert on == off
