"""Weights of rewards as shares."""

import sys

import pytest

from groupwise.rewards.weights import share_out


@pytest.mark.parametrize("unit", [1.0, sys.float_info.max, 1e-300])
def test_shares_are_the_proportion_and_add_up(unit: float) -> None:
    shares = share_out({"label": unit, "format": 0.25 * unit, "logged": 0.0})
    assert shares == {"label": 0.8, "format": 0.2, "logged": 0.0}
