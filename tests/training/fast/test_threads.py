"""Rows of a group add their gradients up in one order, however many threads do it."""

import torch

from groupwise.training.fast.shared import Packing, Streams


def differentiate(prefix, prompt_of_row, weights):
    """Return the gradients of the prompts' keys and values."""
    given = [part.clone().requires_grad_() for part in prefix]
    num_rows = len(prompt_of_row)
    packings = Packing((3, 40)), Packing((num_rows, 0))
    streams = Streams(packings, prompt_of_row, (None, None), "sdpa")
    own = torch.zeros(1, 2, 0, 32)

    def attend(_, keys, values, __):
        return ((keys + values) * weights).sum((1, 2, 3))[:, None], None

    streams.attend_tails(attend, own, own, own, known=given).sum().backward()
    return [part.grad for part in given]


def test_gradients_of_prompts_are_the_same_whatever_the_number_of_threads():
    torch.manual_seed(0)
    prefix = torch.randn(2, 3, 2, 40, 32)
    # Two threads divide the 33 rows within the group in the middle.
    prompt_of_row = torch.tensor([0] * 5 + [1] * 23 + [2] * 5)
    weights = torch.randn(33, 2, 40, 32)
    found = []
    for num_threads in (1, 2):
        torch.set_num_threads(num_threads)
        found.append(differentiate(prefix, prompt_of_row, weights))
    torch.set_num_threads(1)
    one, two = found
    assert all(first.equal(second) for first, second in zip(one, two, strict=True))
