"""Verdicts of one session that stand alone between equal ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.serving.flips import FlipMemory, TimedVerdict, flag_flips

VERDICT = st.sampled_from(["on", "off", None])
ROWS = st.lists(st.tuples(st.floats(0, 1000), VERDICT), max_size=12, unique_by=lambda row: row[0])


def flag(text: str, *, step_s: float = 10.0, window_s: float = 60.0) -> str:
    """Return ``!`` for each flagged verdict; a dot in the text is none."""
    verdicts = [None if letter == "." else letter for letter in text]
    times = [step_s * number for number in range(len(text))]
    flags = flag_flips(times, verdicts, window_s=window_s)
    return "".join("!" if one else "-" for one in flags)


@pytest.mark.parametrize(
    ("verdicts", "flags"),
    [
        ("", ""),
        ("a", "-"),
        ("aba", "-!-"),
        ("aabaa", "--!--"),
        ("abb", "---"),
        ("abca", "----"),
        ("abab", "----"),
        ("ababa", "-----"),
        ("abaa", "-!--"),
        ("a.b.a", "--!--"),
        ("aabaabaa", "--!--!--"),
    ],
)
def test_only_isolated_flips_between_equal_verdicts_are_flagged(verdicts: str, flags: str) -> None:
    assert flag(verdicts) == flags


def test_neighbours_that_are_too_far_apart_say_nothing() -> None:
    assert flag("aba", step_s=30, window_s=60) == "-!-"
    assert flag("aba", step_s=31, window_s=60) == "---"


@given(ROWS, st.randoms())
def test_the_order_of_rows_does_not_matter(rows, rng) -> None:
    shuffled = rng.sample(rows, len(rows))
    flags = dict(zip(rows, flag_flips(*_split(rows)), strict=True))
    assert flag_flips(*_split(shuffled)) == [flags[row] for row in shuffled]


@given(ROWS)
def test_what_is_flagged_is_decided_and_unlike_both_neighbours(rows) -> None:
    rows = sorted(rows, key=lambda row: row[0])
    flags = flag_flips(*_split(rows), window_s=200)
    decided = [(row, is_odd) for row, is_odd in zip(rows, flags, strict=True) if row[1]]
    assert sum(flags) == sum(is_odd for _, is_odd in decided)
    for number, ((_, verdict), is_odd) in enumerate(decided):
        if is_odd:
            (before, left), (behind, right) = decided[number - 1][0], decided[number + 1][0]
            assert 0 < number < len(decided) - 1
            assert left == right != verdict
            assert behind - before <= 200
            assert not decided[number - 1][1]
            assert not decided[number + 1][1]


@given(ROWS)
def test_a_session_with_one_verdict_has_no_flip(rows) -> None:
    times, _ = _split(rows)
    assert not any(flag_flips(times, ["on"] * len(times)))


def test_times_and_verdicts_must_belong_together() -> None:
    with pytest.raises(ValueError, match="2 times for 1 verdicts"):
        flag_flips([0, 1], ["on"])


def recall(text: str, memory: FlipMemory | None = None, *, step_s: float = 10.0) -> str:
    """Return ``!`` for each verdict that may be a flip as it is given; a dot is none."""
    memory = memory or FlipMemory()
    return "".join(
        "-"
        if letter == "." or memory.add("s", TimedVerdict(step_s * number, "a task", letter)) is None
        else "!"
        for number, letter in enumerate(text)
    )


@pytest.mark.parametrize(
    ("verdicts", "flags"),
    [
        ("a", "-"),
        ("aba", "-!-"),
        ("aabaa", "--!--"),
        ("aabb", "--!-"),
        ("ababab", "-!----"),
        ("a.b.a", "--!--"),
        ("aabaabaa", "--!--!--"),
    ],
)
def test_a_given_verdict_may_be_a_flip_if_it_is_unlike_those_just_before(
    verdicts: str, flags: str
) -> None:
    assert recall(verdicts) == flags
    assert recall(verdicts, step_s=121) == "-" * len(verdicts)


@given(ROWS)
def test_every_flip_was_told_when_it_was_served(rows) -> None:
    rows = sorted(rows, key=lambda row: row[0])
    memory = FlipMemory()
    told = [
        one is not None and memory.add("s", TimedVerdict(time_s, "a task", one)) is not None
        for time_s, one in rows
    ]
    flags = flag_flips(*_split(rows))
    assert all(told[place] for place, is_flip in enumerate(flags) if is_flip)


def test_sessions_and_tasks_are_told_apart_and_nearly_the_same_task_is_one() -> None:
    memory = FlipMemory()
    long = "write the whole report about the wells of the northern field"
    assert memory.add("s", TimedVerdict(0, f"{long} for them", "on")) is None
    assert memory.add("t", TimedVerdict(1, f"{long} for them", "off")) is None
    assert memory.add("s", TimedVerdict(2, "watch the news", "off")) is None
    unlike = memory.add("s", TimedVerdict(3, f"{long.upper()} for  us", "off"))
    assert unlike == TimedVerdict(0, f"{long} for them", "on")


def test_the_memory_is_bounded_and_forgets_the_session_that_was_asked_about_least_lately() -> None:
    memory = FlipMemory(num_sessions=2)
    for number in range(50):
        memory.add("old", TimedVerdict(number, "t" * 10_000, "on"))
    memory.add("new", TimedVerdict(50, "t", "on"))
    assert sum(len(one.task) for one in memory._sessions["old"]) == 4 * 200
    memory.add("newer", TimedVerdict(51, "t", "on"))
    assert list(memory._sessions) == ["new", "newer"]


def test_a_screen_that_arrives_late_is_held_against_what_was_before_it() -> None:
    memory = FlipMemory()
    memory.add("s", TimedVerdict(0, "t", "on"))
    memory.add("s", TimedVerdict(20, "t", "off"))
    assert memory.add("s", TimedVerdict(10, "t", "on")) is None
    assert memory.add("s", TimedVerdict(30, "t", "off")) is None


def _split(rows):
    return [time for time, _ in rows], [verdict for _, verdict in rows]
