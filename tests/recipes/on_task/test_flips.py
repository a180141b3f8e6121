"""Verdicts of one session that stand alone between equal ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise_recipes.on_task.flips import flag_flips

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


def _split(rows):
    return [time for time, _ in rows], [verdict for _, verdict in rows]
