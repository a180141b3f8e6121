"""Verdicts on candidates: both claims need evidence, and rounds share one level."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_1samp

from groupwise.learning.promotion import (
    Sessions,
    find_level,
    is_promoted,
    judge_candidate,
    score_loss,
)


def make(num: int, gain: float, changed: float = 0.1) -> Sessions:
    """Sessions of four items, a share of which is answered otherwise."""
    random = np.random.default_rng(3)
    values = random.choice(
        [-1.0, 0.0, 1.0],
        p=[(changed - gain) / 2, 1 - changed, (changed + gain) / 2],
        size=(num, 4),
    )
    return Sessions(values.sum(axis=1), np.full(num, 4.0))


BETTER, ALIKE, WORSE = make(80, 0.3, 0.3), make(1500, 0.0), make(1500, -0.08)


def take(sessions: Sessions, num: int) -> Sessions:
    return Sessions(sessions.sums[:num], sessions.sizes[:num])


def judge(corrected: Sessions, held_out: Sessions):
    return judge_candidate(corrected, held_out, level=0.025)


def test_a_gain_that_costs_nobody_is_promoted():
    found = judge(BETTER, ALIKE)
    assert found.verdict == "promoted"
    assert found.corrected_low > 0
    assert found.better >= 40
    assert found.not_worse <= 0.025


@pytest.mark.parametrize(
    ("corrected", "held_out", "verdict"),
    [
        (BETTER, WORSE, "rejected"),
        (Sessions(-BETTER.sums, BETTER.sizes), ALIKE, "rejected"),
        (BETTER, take(ALIKE, 100), "undecided"),
        (take(BETTER, 5), ALIKE, "undecided"),
        (take(BETTER, 0), ALIKE, "undecided"),
        (BETTER, take(ALIKE, 0), "undecided"),
    ],
)
def test_neither_claim_makes_up_for_the_other(corrected, held_out, verdict):
    assert judge(corrected, held_out).verdict == verdict


@given(st.floats(0, 1e6), st.floats(0, 1))
def test_both_need_the_whole_level(better, not_worse):
    assert is_promoted(better, not_worse, 0.01) == (better >= 100 and not_worse <= 0.01)


@given(st.integers(1, 400), st.floats(0.01, 0.5))
def test_sessions_without_a_loss_tell_no_more_than_they_can(num, margin):
    """The share of one more that loses all is above the margin with (1 - margin) ** num."""
    alike = Sessions(np.zeros(num), np.ones(num))
    assert score_loss(alike, margin) == pytest.approx((1 - margin) ** num, abs=0.01)
    assert score_loss(Sessions(-np.ones(num), np.ones(num)), margin) == 1


def draw_leaning(random, sizes):
    """One in ten items is answered otherwise, to one side in a session."""
    changed = random.binomial(sizes.astype(int), 0.1)
    lean = np.clip(0.5 - 0.1 + random.choice((-0.3, 0.3), len(sizes)), 0, 1)
    return 2.0 * random.binomial(changed, lean) - changed


def draw_whole(random, sizes):
    """One in fifty sessions is lost as a whole, and nothing else changes."""
    return np.where(random.random(len(sizes)) < 0.02, -sizes, 0.0)


def draw_paid_back(random, sizes):
    """One in twenty-five sessions is lost as a whole, and every other one gains a little."""
    return np.where(random.random(len(sizes)) < 0.04, -sizes, 0.02 / 0.96 * sizes)


@pytest.mark.parametrize("draw", [draw_leaning, draw_whole, draw_paid_back])
@pytest.mark.parametrize("num", [307, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_loss_of_the_margin_is_let_through_no_oftener_than_it_says(draw, num: int):
    random = np.random.default_rng(0)
    sizes = random.integers(1, 13, num).astype(float)
    p_values = np.array(
        [score_loss(Sessions(draw(random, sizes), sizes), 0.02, num_draws=999) for _ in range(1000)]
    )
    for level in (0.05, 0.025, 0.01):
        assert (p_values <= level).mean() <= level + 3 * (level / len(p_values)) ** 0.5


def test_students_t_lets_through_what_loses_whole_sessions():
    """Three times as often as it says, and more: so that the test above can fail."""
    random = np.random.default_rng(0)
    p_values = []
    for _ in range(1000):
        gains = draw_whole(random, np.ones(307))
        p_values.append(ttest_1samp(gains, -0.02, alternative="greater").pvalue)
    assert (np.array(p_values) <= 0.01).mean() > 0.03


def test_rounds_share_one_level():
    assert find_level(1) == 0.025
    levels = [find_level(candidate) for candidate in range(1, 10_000)]
    assert 0.0499 < sum(levels) <= 0.05
