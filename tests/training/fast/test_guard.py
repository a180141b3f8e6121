import pytest
import torch

from groupwise.training.fast.guard import ShapeGuard, compare_passes

PLAIN = [torch.tensor([-1.0, value, -9.0]) for value in (-2.0, -2.25, -2.125)]


def shift(by):
    return torch.tensor([-1.0, -2.0, -9.0 + by])


def test_a_difference_may_be_twice_that_of_plain_passes():
    assert compare_passes(shift(0.5), PLAIN, ulp=1e-3).is_close
    found = compare_passes(shift(0.51), PLAIN, ulp=1e-3)
    assert not found.is_close
    assert str(found) == (
        "differ by 5.1e-01 from plain passes, which differ by 2.5e-01 from each other"
    )


def test_it_is_taken_from_the_nearest_plain_pass():
    assert compare_passes(torch.tensor([-1.0, -2.25, -9.0]), PLAIN, ulp=0).difference == 0


def test_plain_passes_that_agree_leave_what_logits_can_resolve():
    assert compare_passes(shift(0.05), PLAIN[:1] * 3, ulp=0.03).is_close
    assert not compare_passes(shift(0.07), PLAIN[:1] * 3, ulp=0.03).is_close


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_what_is_no_number_is_never_close(bad):
    wrong = torch.tensor([bad, -2.0, -9.0])
    assert not compare_passes(wrong, PLAIN, ulp=1.0).is_close
    assert not compare_passes(shift(0), [*PLAIN, wrong], ulp=1.0).is_close


def test_each_shape_is_new_once():
    guard = ShapeGuard()
    assert [guard.is_new(shape) for shape in ((1, 8), (1, 16), (1, 8))] == [True, True, False]
