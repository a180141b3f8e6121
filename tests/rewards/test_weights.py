"""Weights of rewards as shares."""

import sys

import pytest

from groupwise.core import RewardError
from groupwise.rewards import describe_weights
from groupwise.rewards.weights import share_out


@pytest.mark.parametrize("unit", [1.0, sys.float_info.max, 1e-300])
def test_shares_are_the_proportion_and_add_up(unit: float) -> None:
    shares = share_out({"label": unit, "format": 0.25 * unit, "logged": 0.0})
    assert shares == {"label": 0.8, "format": 0.2, "logged": 0.0}


def test_the_weights_that_count_are_one_line() -> None:
    weights = {"label": 0.3, "judge": 0.5, "verifier": 0.2}
    assert describe_weights(weights) == "label 0.3, judge 0.5, verifier 0.2"
    line = "label 0.375, judge 0.625 (absent: verifier)"
    assert describe_weights(weights, absent=["verifier", "verifier"]) == line
    with pytest.raises(RewardError, match="no such reward in the set; got 'x'"):
        describe_weights(weights, absent=["x"])
    with pytest.raises(RewardError, match="no reward with a weight is left"):
        describe_weights(weights, absent=["label", "judge", "verifier"])
