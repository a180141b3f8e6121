import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.training.sft import ReadAhead

PATIENCE_S = 5


@given(st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=6), max_size=6))
def test_batches_are_those_that_were_asked_for(asked):
    """Whatever the order, and whatever was begun."""
    read = ReadAhead(lambda places: [place * 10 for place in places], num_rows=31)
    for places in asked:
        assert read(places) == [place * 10 for place in places]


def test_the_next_batch_is_made_meanwhile():
    """Nobody asks for it, and it is made once."""
    made, all_made = [], threading.Event()

    def collate(places):
        made.append(list(places))
        if len(made) == 3:
            all_made.set()
        return places

    read = ReadAhead(collate, num_rows=5)
    read([0, 1])
    read([2, 3])
    assert all_made.wait(PATIENCE_S)
    assert made == [[0, 1], [2, 3], [4]]
    read([4])
    assert len(made) == 3


def test_an_error_is_raised_where_its_batch_is_asked_for():
    def collate(places):
        if 2 in places:
            raise ValueError("torn picture")
        return places

    read = ReadAhead(collate, num_rows=4)
    assert read([0, 1]) == [0, 1]
    with pytest.raises(ValueError, match="torn picture"):
        read([2, 3])
