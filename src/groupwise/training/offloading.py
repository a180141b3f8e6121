"""What a backward pass needs, kept in the memory of the CPU until it comes.

As PyTorch's ``save_on_cpu``, but weights stay where they are: nothing would be saved by a copy.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

_MIN_BYTES = 1024
_CPU = torch.device("cpu")


@contextmanager
def offload_activations(model: Any, *, applies: bool = True) -> Iterator[None]:
    """Within this context, a forward pass, tensors that the backward pass needs move to the CPU.

    On a CPU they are copied. Backward passes may come after it.

    Args:
        model: whose weights stay.
        applies: whether anything moves.
    """
    if not applies:
        yield
        return
    weights = {value.untyped_storage().data_ptr() for value in model.parameters()}

    def pack(value: torch.Tensor) -> tuple[torch.device, torch.Tensor]:
        if value.nbytes < _MIN_BYTES or value.untyped_storage().data_ptr() in weights:
            return value.device, value
        is_far = value.device.type == "cuda"
        # Strides stay: a kernel that reads in another order adds up in another one, too.
        copy = torch.empty_like(value, device=_CPU, pin_memory=is_far)
        copy.copy_(value, non_blocking=is_far)
        return value.device, copy

    def unpack(packed: tuple[torch.device, torch.Tensor]) -> torch.Tensor:
        device, value = packed
        return value.to(device, non_blocking=True)

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        yield
