import json
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.core import ConfigError, DataError, write_json
from groupwise_recipes.demo_selection.cells import (
    Base,
    Cell,
    CellRow,
    EvaluationFacts,
    draw_subsets,
    list_cells,
    parse_cell,
    read_cell,
    read_facts,
    read_subsets,
    take_subset,
    write_cell,
    write_facts,
    write_subsets,
)

ROW = CellRow("a", "cluster", ("x", "y"), "net", 0.9)
FAILED = CellRow("b", "cluster", ("x", "z"), None, None)


@given(
    st.from_regex(r"[a-z][a-z_]*", fullmatch=True), st.integers(0, 9), st.none() | st.integers(1, 9)
)
def test_a_cell_is_found_again_by_its_name(system, shots, epoch):
    cell = Cell(system, shots, epoch)
    assert parse_cell(cell.name) == cell


def test_names_are_those_of_the_files(tmp_path):
    write_cell(tmp_path, Cell("rce", 3, 2), [ROW])
    write_cell(tmp_path, Cell("nearest_both", 1), [ROW])
    names = [path.name for path in sorted((tmp_path / "cells").iterdir())]
    assert names == ["nearest_both-shots-1.jsonl", "rce-epoch-2-shots-3.jsonl"]
    assert list_cells(tmp_path) == [Cell("nearest_both", 1), Cell("rce", 3, 2)]
    with pytest.raises(DataError, match="no cell's name"):
        parse_cell("rce-epoch-two-shots-3")


def test_rows_come_back_and_a_cell_that_has_not_run_has_none(tmp_path):
    cell = Cell("grpo", 2, 1)
    assert read_cell(tmp_path, cell) == ()
    path = write_cell(tmp_path, cell, [ROW, FAILED])
    assert json.loads(path.read_text().splitlines()[0]) == {
        "id": "a",
        "cluster": "cluster",
        "demos": ["x", "y"],
        "answer": "net",
        "accuracy": 0.9,
    }
    assert read_cell(tmp_path, cell) == (ROW, FAILED)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([ROW, ROW], "an item twice"),
        ([replace(ROW, accuracy=1.2)], "row 1 is not as expected; got accuracy"),
        ([FAILED, replace(ROW, demos=None)], "row 2 is not as expected; got demos"),
    ],
)
def test_rows_that_are_not_as_they_should_be_are_refused(tmp_path, rows, words):
    write_cell(tmp_path, Cell("random", 1), rows)
    with pytest.raises(DataError, match=words):
        read_cell(tmp_path, Cell("random", 1))


def test_a_subset_is_there_if_all_of_it_is():
    assert take_subset([ROW, FAILED], ["b", "a"]) == (FAILED, ROW)
    assert take_subset([ROW, FAILED], ["a"]) == (ROW,)
    assert take_subset([ROW], ["a", "b"]) is None
    assert take_subset([], []) is None


@given(st.integers(1, 30), st.data())
def test_subsets_are_nested_and_in_the_order_of_the_split(number, data):
    ids = [f"test-{place}" for place in range(number)]
    sizes = data.draw(st.sets(st.integers(1, number), min_size=1))
    drawn = draw_subsets(ids, sizes, seed=data.draw(st.integers(0, 5)))
    found = [drawn.subsets[str(size)] for size in sorted(sizes)]
    assert [len(one) for one in found] == sorted(sizes)
    assert all(set(small) <= set(large) for small, large in pairwise(found))
    assert all(list(one) == [id_ for id_ in ids if id_ in one] for one in found)
    assert drawn.largest == found[-1]


def test_subsets_are_drawn_by_their_seed():
    ids = [str(place) for place in range(50)]
    assert draw_subsets(ids, [10], seed=0) == draw_subsets(ids, [10, 10], seed=0)
    assert draw_subsets(ids, [10], seed=0).largest != draw_subsets(ids, [10], seed=1).largest
    for sizes in ([], [0], [51]):
        with pytest.raises(ConfigError, match="sizes from 1 to 50"):
            draw_subsets(ids, sizes, seed=0)


def test_what_cells_share_comes_back(tmp_path):
    facts = EvaluationFacts(
        {"data": "d", "pools": None}, Base("RCE epoch 5", "b"), 2, {"rce": 5, "grpo": 3}
    )
    write_facts(tmp_path, facts)
    assert read_facts(tmp_path) == facts
    write_facts(tmp_path, replace(facts, base=None))
    assert read_facts(tmp_path) == replace(facts, base=None)
    subsets = draw_subsets(["a", "b", "c"], [1, 3], seed=4)
    write_subsets(tmp_path, subsets)
    assert read_subsets(tmp_path) == subsets
    write_json(tmp_path / "subsets.json", {"nested": True})
    with pytest.raises(DataError, match=r"subsets\.json is not as expected"):
        read_subsets(tmp_path)
