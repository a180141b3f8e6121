"""Evidence by betting: fair bets, no order, and a level that repeated looks do not spend."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.learning.evidence import bound_gain_below, weigh_gains

GAINS = st.lists(st.floats(-1, 1), min_size=1, max_size=30).map(np.array)
MARGINS = st.floats(-0.9, 0.9)


def expect_wealth(low: float, high: float, share: float, margin: float) -> float:
    """The expected wealth after four sessions that gain ``high`` with this probability."""
    draws = np.array(list(itertools.product((low, high), repeat=4)))
    num_high = (draws == high).sum(axis=1)
    chances = share**num_high * (1 - share) ** (4 - num_high)
    return float((chances * weigh_gains(draws, margin)).sum())


@given(st.floats(-1, 0), st.floats(0.01, 1), st.floats(0.01, 0.99))
def test_against_the_true_mean_bets_are_fair_and_against_more_they_lose(low, high, share):
    mean = share * high + (1 - share) * low
    if abs(mean) < 0.99:
        assert expect_wealth(low, high, share, mean) == pytest.approx(1, rel=1e-9)
        above = mean + 0.1 * (1 - abs(mean))
        assert expect_wealth(low, high, share, above) < 1 - 1e-6


@given(GAINS, MARGINS, st.randoms())
def test_the_order_of_sessions_does_not_matter(gains, margin, random):
    shuffled = gains.tolist()
    random.shuffle(shuffled)
    assert weigh_gains(shuffled, margin) == pytest.approx(weigh_gains(gains, margin), rel=1e-9)


@given(GAINS, MARGINS, st.floats(0.001, 0.05))
def test_more_is_known_of_a_lower_margin(gains, margin, step):
    assert weigh_gains(gains, margin - step) >= weigh_gains(gains, margin) * (1 - 1e-9)


@given(GAINS, st.floats(0.001, 0.5))
def test_the_lower_end_is_where_the_evidence_is_enough(gains, level):
    low = bound_gain_below(gains, level)
    assert -1 <= low <= gains.mean() + 1e-9
    if low > -0.999:
        assert weigh_gains(gains, low - 1e-6) >= (1 - 1e-9) / level
    assert weigh_gains(gains, min(low + 1e-6, 0.999)) <= (1 + 1e-3) / level


def test_without_sessions_nothing_is_known():
    assert weigh_gains([]) == 1
    assert bound_gain_below([], 0.05) == -1


@pytest.mark.parametrize(
    ("gains", "margin"), [([1.1], 0), ([np.nan], 0), ([0.5], 1.0), ([0.5], -1)]
)
def test_what_is_out_of_range_is_refused(gains, margin):
    with pytest.raises(ValueError, match=r"in \[-1, 1\]|in \(-1, 1\)"):
        weigh_gains(gains, margin)


def test_looking_after_every_session_does_not_spend_the_level():
    """A one-sided t-interval, looked at as often, is wrong several times as often as it says."""
    random = np.random.default_rng(0)
    gains = random.choice([-0.5, 0.0, 0.5], size=(2000, 150), p=[0.2, 0.6, 0.2])
    looks = np.stack([weigh_gains(gains[:, :num]) for num in range(3, 151, 3)], axis=1)
    assert (looks.max(axis=1) >= 20).mean() < 0.05
    counts = np.arange(1, 151)
    means = gains.cumsum(axis=1) / counts
    errors = np.sqrt(((gains**2).cumsum(axis=1) / counts - means**2) / counts)
    assert ((means > 1.645 * errors) & (counts >= 20)).any(axis=1).mean() > 0.15


def test_a_gain_is_found():
    random = np.random.default_rng(1)
    gains = random.choice([-0.5, 0.0, 0.5], size=(500, 150), p=[0.1, 0.6, 0.3])
    assert (weigh_gains(gains) >= 20).mean() > 0.8
