"""What a backward pass needs, kept in the memory of the CPU until it comes.

As PyTorch's ``save_on_cpu``, but weights stay where they are: nothing would be saved by a copy.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

_MIN_BYTES = 1024
_MAX_SPAN = 1.5
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

    def pack(value: torch.Tensor) -> _Moved | torch.Tensor:
        if value.nbytes < _MIN_BYTES or value.untyped_storage().data_ptr() in weights:
            return value
        span = _find_span(value)
        if span is None:
            return _Moved(_copy_out(value), value.device)
        return _Moved(_copy_out(span), value.device, (value.size(), value.stride()))

    def unpack(packed: _Moved | torch.Tensor) -> torch.Tensor:
        if isinstance(packed, torch.Tensor):
            return packed
        back = packed.copy.to(packed.device, non_blocking=True)
        return back if packed.form is None else back.as_strided(*packed.form)

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        yield


@dataclass(frozen=True)
class _Moved:
    """A tensor in the memory of the CPU.

    Attributes:
        copy: of the tensor; or of the memory in which it lies, shape [numbers].
        device: where it was.
        form: its size and strides in that memory; None: the copy is the tensor.
    """

    copy: torch.Tensor
    device: torch.device
    form: tuple[torch.Size, tuple[int, ...]] | None = None


def _find_span(value: torch.Tensor) -> torch.Tensor | None:
    """Return the memory in which a tensor lies, shape [numbers]; None: much else lies in it.

    Its strides stay then: a kernel that reads in another order adds up in another one, too; masks
    of attention have to begin at certain places; what is expanded is held once.
    """
    parts = zip(value.shape, value.stride(), strict=True)
    span = 1 + sum((size - 1) * stride for size, stride in parts)
    return value.as_strided((span,), (1,)) if span <= _MAX_SPAN * value.numel() else None


def _copy_out(value: torch.Tensor) -> torch.Tensor:
    is_far = value.device.type == "cuda"
    copy = torch.empty_like(value, device=_CPU, pin_memory=is_far)
    return copy.copy_(value, non_blocking=is_far)
