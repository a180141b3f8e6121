import pytest
import torch

from groupwise.training.fast.guard import ShapeGuard


def plain(value):
    return lambda: torch.tensor([0.0, value])


def refuse():
    raise AssertionError("a plain pass that is not needed")


def test_each_shape_is_compared_once():
    guard, fast = ShapeGuard(1e-3), torch.zeros(2)
    assert guard.find_difference((1, 8), fast, plain(1e-4)) is None
    assert guard.find_difference((1, 8), fast, refuse) is None
    assert guard.find_difference((1, 16), fast, plain(0.5)) == pytest.approx(0.5)


def test_a_difference_that_is_no_number_is_too_large():
    assert ShapeGuard(1e-3).find_difference(0, torch.zeros(2), plain(torch.nan)) is not None


def test_without_a_real_token_there_is_no_difference():
    guard = ShapeGuard(1e-3)
    assert guard.find_difference(0, torch.zeros(0), lambda: torch.zeros(0)) is None
