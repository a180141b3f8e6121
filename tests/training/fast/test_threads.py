"""Rows of a group add their gradients up in one order, however many threads do it."""

import torch

from groupwise.training.fast.memory import BlockMemory


def differentiate(prefix, prompt_of_row, weights):
    """Return the gradients of the prompts' keys and values."""
    given = [part.clone().requires_grad_() for part in prefix]
    prompts = BlockMemory()
    prompts.update(given[0], given[1])
    rows = prompts.repeat(prompt_of_row)
    own = torch.zeros(len(prompt_of_row), 2, 1, 32)
    total = torch.stack([(part * weights).sum() for part in rows.update(own, own)]).sum()
    return torch.autograd.grad(total, given)


def test_gradients_of_prompts_are_the_same_whatever_the_number_of_threads():
    torch.manual_seed(0)
    prefix = torch.randn(2, 3, 2, 40, 32)
    # Two threads divide the 33 rows within the group in the middle.
    prompt_of_row = torch.tensor([0] * 5 + [1] * 23 + [2] * 5)
    weights = torch.randn(33, 2, 41, 32)
    found = []
    for num_threads in (1, 2):
        torch.set_num_threads(num_threads)
        found.append(differentiate(prefix, prompt_of_row, weights))
    torch.set_num_threads(1)
    one, two = found
    assert all(first.equal(second) for first, second in zip(one, two, strict=True))
