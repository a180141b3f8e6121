"""Batches are full, of one length, wait for no item beyond their window, and fit into memory."""

from concurrent.futures import ThreadPoolExecutor
from itertools import count, islice

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from groupwise.inference.streaming.local import (
    MemoryLimit,
    form_batches,
    halve,
    is_out_of_memory,
    open_pool,
    prepare_ahead,
)
from groupwise.inference.streaming.work import WorkItem


def form(lengths, batch_size=4, window=12):
    items = (WorkItem(number, None) for number in range(len(lengths)))
    batches = form_batches(
        items,
        measure=lambda found: [lengths[item.number] for item in found],
        batch_size=batch_size,
        window=window,
    )
    return [[item.number for item in batch] for batch in batches]


@given(st.lists(st.integers(0, 5), max_size=60), st.integers(1, 5), st.integers(1, 4))
def test_every_item_is_in_one_full_batch_of_its_window(lengths, batch_size, look_ahead):
    window = batch_size * look_ahead
    batches = form(lengths, batch_size, window)
    assert sorted(number for batch in batches for number in batch) == list(range(len(lengths)))
    assert sum(len(batch) < batch_size for batch in batches) <= 1
    for batch in batches:
        assert len({number // window for number in batch}) == 1
    assert [b[0] // window for b in batches] == sorted(b[0] // window for b in batches)


def test_a_window_is_cut_into_batches_of_similar_length_that_keep_the_order():
    assert form([1, 9, 5] * 4) == [[0, 3, 6, 9], [1, 4, 7, 10], [2, 5, 8, 11]]
    assert form([7] * 8) == [[0, 1, 2, 3], [4, 5, 6, 7]]


@pytest.mark.parametrize("num_ahead", [0, 1, 2])
def test_batches_are_prepared_in_order_and_only_so_far_ahead(num_ahead):
    begun = []
    batches = ([WorkItem(2 * n, None), WorkItem(2 * n + 1, None)] for n in count())
    with open_pool(3) as pool:
        prepared = prepare_ahead(
            batches, lambda item: begun.append(item) or item.number, pool=pool, num_ahead=num_ahead
        )
        for number, found in enumerate(islice(prepared, 20)):
            assert found == [2 * number, 2 * number + 1]
            assert len(begun) <= 2 * (number + 1 + num_ahead)


def test_what_preparing_raises_is_raised_and_the_rest_is_dropped():
    done = []

    def prepare(item):
        if item.number == 2:
            raise MemoryError("decode")
        done.append(item.number)

    batches = ([WorkItem(number, None)] for number in range(1000))
    with pytest.raises(MemoryError, match="decode"), open_pool(1) as pool:
        for _ in prepare_ahead(batches, prepare, pool=pool, num_ahead=3):
            pass
    assert len(done) < 10
    assert isinstance(pool, ThreadPoolExecutor)
    with pytest.raises(RuntimeError, match="shutdown"):
        pool.submit(print)


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
