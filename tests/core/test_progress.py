"""Lines about how far something is: when they come and what they say."""

import time
from collections.abc import Callable

import pytest

from groupwise.core import ProgressLine, describe_duration, hush, keep_telling


def tick(*moments: float) -> Callable[[], float]:
    times = iter(moments)
    return lambda: next(times)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "about 0 s"), (89, "about 89 s"), (100, "about 2 min"), (9000, "about 2.5 h")],
)
def test_durations(seconds: float, words: str) -> None:
    assert describe_duration(seconds) == words


def test_lines_come_every_few_seconds_and_at_the_end() -> None:
    said: list[str] = []
    clock = tick(0.0, 30.0, 31.0, 40.0, 41.0)
    line = ProgressLine("verdicts", said.append, every_s=5, clock=clock)
    for num_done in (10, 12, 30, 50):
        line(num_done, 50)
    # 20 more in 10 s after a slow start: the 20 that are left take 10 s
    assert said == [
        "10 of 50 verdicts",
        "30 of 50 verdicts, about 10 s left",
        "50 of 50 verdicts, in 11 s",
    ]


def test_what_is_left_counts_down_while_one_thing_takes_long() -> None:
    said: list[str] = []
    line = ProgressLine("steps", said.append, clock=tick(0, 0, 90, 100, 110, 114, 200))
    for num_done in range(4):  # the first takes 90 s, the others 10
        line(num_done, 6)
    for _ in range(2):
        line.tell()
    assert said == [
        "1 of 6 steps, about 8 min left",
        "2 of 6 steps, about 40 s left",
        "3 of 6 steps, about 30 s left",
        "3 of 6 steps, about 26 s left",
        "3 of 6 steps, about 20 s left",
    ]


def wait_for(said: list[str], num: int) -> None:
    for _ in range(500):
        if len(said) >= num:
            return
        time.sleep(0.01)


def test_something_is_said_while_nothing_comes() -> None:
    said: list[str] = []
    with keep_telling(said.append, "prepare", every_s=0.01):
        wait_for(said, 2)
        line = ProgressLine("rows", said.append)
        line(0, 9)
        line(3, 9)
        said.clear()
        wait_for(said, 1)
        line.end()
        assert said[0].startswith("3 of 9 rows, about ")
        said.clear()
        wait_for(said, 2)
        assert "prepare: 0 s so far" in said
    said.clear()
    time.sleep(0.05)
    assert said == []


def test_nothing_is_said_beside_a_bar_or_other_lines() -> None:
    said: list[str] = []
    hush(True)
    try:
        with keep_telling(said.append, "grpo", every_s=0.01):
            time.sleep(0.05)
    finally:
        hush(False)
    with keep_telling(said.append, "grpo") as say:
        say("a line")
    assert said == ["a line"]


def test_a_line_says_what_else_there_is_and_does_without_an_end() -> None:
    said: list[str] = []
    line = ProgressLine("items", said.append, every_s=0)
    line(3, None, "2.0/s")
    line(4, None)
    assert said == ["3 items, 2.0/s", "4 items"]
