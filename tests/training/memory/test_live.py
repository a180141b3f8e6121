"""Bytes of tensors are counted once each, for as long as they are held."""

import torch
from torch import nn

from groupwise.training.memory.live import LiveBytes


def test_what_is_held_counts_and_what_is_let_go_does_not():
    with LiveBytes() as live:
        kept = torch.zeros(100)
        torch.zeros(50)
        assert live.now == 400
        assert live.peak == 600
        del kept
        assert live.now == 0
        torch.zeros(10)
    assert live.peak == 600


def test_views_of_a_tensor_are_the_same_bytes():
    with LiveBytes() as live:
        whole = torch.zeros(10, 10)
        view = whole.t()[2:]
        del whole
        assert live.now == 400
        del view
        assert live.now == 0


def test_what_was_there_before_counts_when_it_is_told():
    layer = nn.Linear(10, 10, bias=False)
    live = LiveBytes()
    assert live.hold(layer.parameters()) == 400
    with live:
        _ = layer.weight.t()
        assert live.now == 400
    assert live.hold(layer.parameters()) == 0


def test_a_backward_pass_holds_what_the_forward_pass_kept():
    weight = torch.ones(4, 4, requires_grad=True)
    live = LiveBytes()
    live.hold([weight])
    with live:
        loss = (torch.ones(100, 4) @ weight).exp().sum()
        assert live.now > 2 * 1600  # the inputs and the exponentials
        loss.backward()
        del loss
    assert live.now == 2 * 64  # the weight and its gradient
