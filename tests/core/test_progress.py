"""Lines about how far something is: when they come and what they say."""

from collections.abc import Callable

import pytest

from groupwise.core import ProgressLine, describe_duration


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
        "50 of 50 verdicts",
    ]


def test_a_line_says_what_else_there_is_and_does_without_an_end() -> None:
    said: list[str] = []
    line = ProgressLine("items", said.append, every_s=0)
    line(3, None, "2.0/s")
    line(4, None)
    assert said == ["3 items, 2.0/s", "4 items"]
