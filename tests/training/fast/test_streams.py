"""Rows without their padding."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from groupwise.training.fast.shared import Packing


@st.composite
def masks(draw):
    """Rows of padding, real tokens with or without gaps, and padding; some rows have none."""
    width = draw(st.integers(1, 6))
    row = st.lists(st.integers(0, 1), min_size=width, max_size=width)
    return torch.tensor(draw(st.lists(row, min_size=1, max_size=4)))


def is_inside(row):
    """Whether each token is between the first and the last real one."""
    real = [place for place, value in enumerate(row) if value]
    return [bool(real) and real[0] <= place <= real[-1] for place in range(len(row))]


@given(masks())
def test_only_what_is_before_and_behind_is_left_out(mask):
    packing, inside = Packing.of(mask), torch.tensor([is_inside(row) for row in mask.tolist()])
    rows = torch.arange(mask.numel(), dtype=torch.float).add(1).view(mask.shape)
    kept = rows[inside] if inside.any() else rows.flatten()
    assert packing.pack(rows).tolist() == [kept.tolist()]
    assert packing.num_tokens == len(kept)


@given(masks())
def test_what_was_left_out_comes_back_as_zeros(mask):
    packing = Packing.of(mask)
    rows = torch.rand(*mask.shape, 2) + 1
    found = packing.unpack(packing.pack(rows))
    is_kept = packing.unpack(torch.ones(1, packing.num_tokens)).bool()
    assert found.equal(rows * is_kept[..., None])
