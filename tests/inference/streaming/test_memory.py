"""Which errors mean too little memory, and what is remembered of them."""

import pytest
import torch

from groupwise.inference.streaming.local import MemoryLimit, halve, is_out_of_memory


@pytest.mark.parametrize(
    ("error", "is_memory"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), True),
        (torch.cuda.OutOfMemoryError("x"), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("MPS backend out of memory (MPS allocated: 1 GB)"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`"), True),
        (RuntimeError("shape '[2, 3]' is invalid for input of size 4"), False),
        (RuntimeError("CUDA error: device-side assert triggered"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_only_lack_of_memory_counts(error, is_memory):
    assert is_out_of_memory(error) is is_memory


def test_a_real_allocation_that_is_too_large():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)


def test_a_batch_that_did_not_fit_keeps_later_ones_smaller():
    limit = MemoryLimit()
    assert limit.fits(1000, 100_000)
    limit.lower(16, 1000)
    assert not limit.fits(16, 1000)
    assert limit.fits(8, 1000)
    assert limit.fits(16, 500)
    assert not limit.fits(9, 1000)
    limit.lower(3, 4000)
    assert limit.fits(8, 1000)
    assert not limit.fits(3, 4000)
    assert limit.fits(1, 100_000)


def test_halves_keep_the_order():
    assert halve([1, 2, 3]) == ([1, 2], [3])
    assert halve([1, 2]) == ([1], [2])
