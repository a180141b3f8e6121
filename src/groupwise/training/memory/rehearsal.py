"""Code that runs without numbers: tensors have shapes, types and a size, and no memory."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
import trl.kernels.chunked_logprob
import trl.trainer.utils
from torch import nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.nn import functional
from torch.utils._pytree import tree_iter

from groupwise.training.memory.live import LiveBytes

# What code looks into is small: ids, masks of rows, grids of pictures.
_MAX_REAL = 2**20
# So many scales of weights in 4 bits have a scale of their own.
_SCALES = 256
_INDEXED = frozenset(
    {
        torch.ops.aten.index.Tensor,
        torch.ops.aten.index_put.default,
        torch.ops.aten.index_put_.default,
        torch.ops.aten._unsafe_index_put.default,
        torch.ops.aten._index_put_impl_.default,
    }
)


class Rehearsal(LiveBytes):
    """Runs operations without numbers and counts the bytes that they would hold.

    Small tensors that follow from small tensors alone stay real, because models look into them
    (how many patches a picture has); whatever meets a weight is fake.
    """

    def __init__(self) -> None:
        super().__init__()
        self._fakes = FakeTensorMode(allow_non_fake_inputs=True)

    def fill(self, model: nn.Module) -> None:
        """Put weights without numbers in the place of those on the device ``meta``, in place."""
        made: dict[int, torch.Tensor] = {}
        for module in model.modules():
            kinds: Any = (module._parameters, module._buffers)
            for kind in kinds:
                for name, value in kind.items():
                    if value is not None:
                        kind[name] = made.setdefault(id(value), self._fill(value))

    def _fill(self, value: torch.Tensor) -> torch.Tensor:
        if hasattr(value, "quant_state"):
            return self._fill_bits(value)
        with self._fakes:
            empty = torch.empty(value.shape, dtype=value.dtype)
        is_weight = isinstance(value, nn.Parameter)
        return nn.Parameter(empty, value.requires_grad) if is_weight else empty

    def _fill_bits(self, value: Any) -> nn.Parameter:
        """Return two weights in a byte, with scales as bitsandbytes makes them."""
        from bitsandbytes.functional import QuantState  # pyright: ignore[reportMissingImports]

        num_scales = -(-value.numel() // value.blocksize)
        with self._fakes:
            packed = torch.empty(-(-value.numel() // 2), 1, dtype=torch.uint8)
            of_scales = QuantState(
                torch.empty(-(-num_scales // _SCALES)),
                code=torch.empty(256),
                blocksize=_SCALES,
                dtype=torch.float32,
            )
            state = QuantState(
                torch.empty(num_scales, dtype=torch.uint8),
                shape=value.shape,
                code=torch.empty(16),
                blocksize=value.blocksize,
                quant_type=value.quant_type,
                dtype=value.dtype,
                offset=torch.empty(()),
                state2=of_scales,
            )
        filled: Any = nn.Parameter(packed, requires_grad=False)
        filled.quant_state = state
        return filled

    def call(self, func: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
        """Return what the operation returns, without numbers where no code looks for them."""
        given = [v for v in tree_iter((args, kwargs)) if isinstance(v, torch.Tensor)]
        if any(isinstance(value, FakeTensor) for value in given):
            if func in _INDEXED:
                args = (args[0], _find_places(args[1]), *args[2:])
            return func(*args, **kwargs)
        try:
            with self._fakes:
                output = func(*args, **kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException):
            return func(*args, **kwargs)
        made = [v for v in tree_iter(output) if isinstance(v, torch.Tensor)]
        is_small = all(value.numel() <= _MAX_REAL for value in made)
        return func(*args, **kwargs) if is_small else output


def _find_places(indices: Any) -> list[Any]:
    """Return what picks the same values by their places: how many are true must be known."""
    found: list[Any] = []
    for index in indices:
        is_mask = isinstance(index, torch.Tensor) and index.dtype == torch.bool
        found += index.nonzero().unbind(1) if is_mask else [index]
    return found


@contextmanager
def like_cuda() -> Iterator[None]:
    """Within this context a pass over tensors on the CPU holds what a pass on a GPU holds.

    There fused attention holds what it is given, its output and little else; and TRL's head folds
    tiles of logits in one kernel each and leaves out positions without a label.
    """
    kernels = trl.kernels.chunked_logprob
    names = ("_forward_tile", "_backward_tile", "_addmm_fp32")
    with ExitStack() as stack:
        enter = stack.enter_context
        enter(patch.object(functional, "scaled_dot_product_attention", _attend))
        enter(patch.object(trl.trainer.utils, "_use_triton", lambda _: True))
        for name in names:
            enter(patch.object(kernels, name, _fold))
        yield


def _fold(*_: Any, **__: Any) -> None:
    """Stands in for what works in place."""


_attend_plainly = functional.scaled_dot_product_attention


def _attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    **named: Any,
) -> torch.Tensor:
    if not torch.backends.cuda.mem_efficient_sdp_enabled():  # as sdpa_kernel(MATH) says
        return _attend_plainly(query, key, value, attn_mask=attn_mask, **named)
    return _FusedAttention.apply(query, key, value, attn_mask)  # pyright: ignore


class _FusedAttention(torch.autograd.Function):
    """What fused kernels hold: inputs, the output, a number for each query, the mask as numbers."""

    @staticmethod
    def forward(ctx: Any, query: Any, key: Any, value: Any, mask: Any) -> Any:
        """Return the output, laid out token by token."""
        batch, heads, length, _ = query.shape
        output = query.new_empty(batch, length, heads, value.shape[-1]).transpose(1, 2)
        sums = query.new_empty(batch, heads, length, dtype=torch.float32)
        bias = mask.to(query.dtype) if mask is not None else None
        ctx.save_for_backward(query, key, value, bias, output, sums)
        return output

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        """Return gradients of the three inputs."""
        return *(torch.empty_like(part) for part in ctx.saved_tensors[:3]), None
