"""What belongs to a row's pictures is found whichever way a family lays them out."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from groupwise.core import TrainingError
from groupwise.training.fast.pictures import Pictures, find_pictures

COUNTS = st.lists(st.integers(0, 3), min_size=1)


def choose(data, counts):
    places = st.integers(0, len(counts) - 1)
    return [data.draw(st.lists(places, min_size=1)) for _ in range(2)]


def number(length):
    return torch.arange(length)[:, None]


def find_parts(chosen, counts):
    starts = torch.tensor([0, *counts]).cumsum(0).tolist()
    return [part for row in chosen for part in range(starts[row], starts[row + 1])]


@given(
    st.lists(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), max_size=3), min_size=1),
    st.data(),
)
def test_patches_and_grids(sizes, data):
    chosen, _ = choose(data, sizes)
    grid = torch.tensor([[1, *size] for row in sizes for size in row]).reshape(-1, 3)
    fields = {"pixel_values": number(int(grid.prod(-1).sum())), "image_grid_thw": grid}
    counts = [len(row) for row in sizes]
    taken = Pictures.of(fields, counts).take(torch.tensor(chosen))
    expected = find_parts(chosen, [sum(h * w for h, w in row) for row in sizes])
    assert taken.copy("pixel_values").flatten().tolist() == expected
    grids = [[1, *size] for row in chosen for size in sizes[row]]
    assert taken.copy("image_grid_thw").tolist() == grids
    assert taken.count() == taken.count_features() == [counts[row] for row in chosen]
    assert taken.count_tiles() is None


@given(COUNTS, st.data())
def test_entries_of_pictures(counts, data):
    """Rows are taken from rows that were taken before."""
    first, _ = choose(data, counts)
    second, _ = choose(data, first)
    fields = {name: number(sum(counts)) for name in ("pixel_values", "image_sizes")}
    taken = Pictures.of(fields, counts).take(torch.tensor(first)).take(torch.tensor(second))
    rows = [first[place] for place in second]
    for found in taken.copy_fields().values():
        assert found.flatten().tolist() == find_parts(rows, counts)
    assert taken.count_features() == [counts[row] for row in rows]
    assert taken.count_tiles() is None


@given(COUNTS, st.data())
def test_tiles(counts, data):
    chosen, _ = choose(data, counts)
    tiles = [2 * count + (count > 0) for count in counts]
    pictures = Pictures.of({"pixel_values": number(sum(tiles))}, counts, tiles)
    taken = pictures.take(torch.tensor(chosen))
    assert taken.copy("pixel_values").flatten().tolist() == find_parts(chosen, tiles)
    assert taken.count() == [counts[row] for row in chosen]
    assert taken.count_features() == [tiles[row] for row in chosen]
    assert taken.count_tiles() == (taken.count_features() if any(counts) else None)


@given(COUNTS, st.data())
def test_all_pictures_of_a_row_in_one_entry(counts, data):
    chosen, _ = choose(data, counts)
    fields = {name: number(len(counts)) for name in ("pixel_values", "pixel_attention_mask")}
    taken = Pictures.of(fields, counts).take(torch.tensor(chosen))
    for found in taken.copy_fields().values():
        assert found.flatten().tolist() == chosen
    assert taken.count_features() == [1] * len(chosen)


def test_entries_that_are_nobodys():
    assert Pictures.of({"pixel_values": number(3)}, [1, 1]) is None


@given(COUNTS, st.integers(1, 9))
def test_tiles_are_told_by_the_tokens_that_stand_for_them(counts, tokens):
    """Where a processor does not say how many there are."""
    tiles = [2 * count + (count > 0) for count in counts]
    fields = {"pixel_values": number(sum(tiles))}
    found = find_pictures(fields, counts, [tokens * count for count in tiles])
    assert found.sizes["pixel_values"] == tiles


def test_nobody_guesses_whose_pictures_they_are():
    """Sampling would read prompts without them."""
    with pytest.raises(TrainingError, match=r"not known; got pixel_values \[3, 1\]"):
        find_pictures({"pixel_values": number(3)}, [1, 1], [0, 0])
