"""Batches are full, of one length, and no item waits beyond its window."""

from concurrent.futures import ThreadPoolExecutor
from itertools import count, islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.inference.streaming.local import form_batches, open_pool, prepare_ahead
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


def test_a_window_is_cut_into_batches_of_similar_length():
    lengths = [1, 9, 5] * 4
    assert form(lengths) == [[0, 3, 6, 9], [1, 4, 7, 10], [2, 5, 8, 11]]


def test_items_of_one_length_keep_their_order():
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
