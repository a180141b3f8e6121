"""What runs without numbers holds as much as with them."""

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from groupwise.training.memory.live import LiveBytes
from groupwise.training.memory.rehearsal import Rehearsal, like_cuda


def run(layer, given):
    functional.gelu(layer(given)).sum().backward()


def test_a_rehearsal_holds_what_the_run_holds():
    given, real, rehearsal = torch.zeros(64, 32), LiveBytes(), Rehearsal()
    layer = nn.Linear(32, 16)
    real.hold(layer.parameters())
    with real:
        run(layer, given)
    with torch.device("meta"):
        empty = nn.Linear(32, 16)
    rehearsal.fill(empty)
    rehearsal.hold(empty.parameters())
    with rehearsal:
        run(empty, given)
    assert (rehearsal.now, rehearsal.peak) == (real.now, real.peak)
    assert isinstance(empty.weight.grad, FakeTensor)


def test_weights_that_are_tied_stay_one():
    with torch.device("meta"):
        model = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
        model[1].weight = model[0].weight
    model[1].bias.requires_grad_(False)
    Rehearsal().fill(model)
    assert model[0].weight is model[1].weight
    assert model[0].bias.requires_grad
    assert not model[1].bias.requires_grad


def test_code_may_look_into_what_no_weight_has_touched():
    with Rehearsal():
        grid = torch.tensor([[1, 4, 6]])
        assert (grid.prod(-1) // 4).tolist() == [6]
        assert torch.unique(torch.tensor([3, 3, 5])).tolist() == [3, 5]


def test_nothing_large_is_made():
    with Rehearsal() as rehearsal:
        large = torch.zeros(2**20, 2**20)
    assert isinstance(large, FakeTensor)
    assert rehearsal.now == 2**42


def test_rows_may_be_chosen_by_a_mask():
    with torch.device("meta"):
        layer = nn.Linear(4, 4)
    rehearsal = Rehearsal()
    rehearsal.fill(layer)
    with rehearsal:
        chosen = layer(torch.zeros(3, 4))[torch.tensor([True, False, True])]
        chosen.sum().backward()
    assert chosen.shape == (2, 4)


def test_code_that_looks_for_numbers_of_weights_is_told():
    with torch.device("meta"):
        layer = nn.Linear(4, 4)
    rehearsal = Rehearsal()
    rehearsal.fill(layer)
    with rehearsal, pytest.raises(RuntimeError):
        layer(torch.zeros(4)).tolist()


@pytest.mark.parametrize(
    ("backend", "is_held"), [(SDPBackend.EFFICIENT_ATTENTION, False), (SDPBackend.MATH, True)]
)
def test_attention_on_a_gpu_holds_matrices_only_where_it_is_written_out(backend, is_held):
    rows, heads, tokens, size = 2, 4, 512, 8
    with torch.device("meta"):
        layer = nn.Linear(size, size)
    rehearsal = Rehearsal()
    rehearsal.fill(layer)
    mask = torch.ones(rows, 1, tokens, tokens, dtype=torch.bool)
    with like_cuda(), sdpa_kernel(backend), rehearsal:
        query = layer(torch.zeros(rows, heads, tokens, size))
        result = functional.scaled_dot_product_attention(query, query, query, attn_mask=mask)
        result.sum().backward()
    assert layer.weight.grad is not None
    assert (rehearsal.peak > rows * heads * tokens**2 * 4) == is_held
