import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.core import append_jsonl, write_jsonl
from groupwise.evaluation.monitor import RowTail
from groupwise.evaluation.monitor.tail import JsonFile


def test_each_row_is_read_once(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    tail = RowTail(path)
    assert tail.read_new() == ([], False)
    append_jsonl(path, {"step": 1})
    append_jsonl(path, {"step": 2})
    assert tail.read_new() == ([{"step": 1}, {"step": 2}], False)
    assert tail.read_new() == ([], False)
    append_jsonl(path, {"step": 3})
    assert tail.read_new() == ([{"step": 3}], False)


def test_half_a_line_waits_for_its_rest(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n{"step": 2, "los')
    tail = RowTail(path)
    assert tail.read_new() == ([{"step": 1}], False)
    assert tail.read_new() == ([], False)
    with path.open("ab") as stream:
        stream.write(b's": 0.5}\n')
    assert tail.read_new() == ([{"step": 2, "loss": 0.5}], False)
    assert tail.num_damaged == 0


def test_a_replaced_file_is_read_from_its_start(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    write_jsonl(path, [{"step": step} for step in range(4)])
    tail = RowTail(path)
    tail.read_new()
    write_jsonl(path, [{"step": step, "again": True} for step in range(6)])
    rows, is_replaced = tail.read_new()
    assert is_replaced
    assert [row["step"] for row in rows] == [0, 1, 2, 3, 4, 5]


def test_a_cut_file_is_read_from_its_start(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    write_jsonl(path, [{"step": step} for step in range(4)])
    tail = RowTail(path)
    tail.read_new()
    os.truncate(path, len(b'{"step": 0}\n'))
    assert tail.read_new() == ([{"step": 0}], True)


def test_a_removed_file_takes_its_rows_along(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    write_jsonl(path, [{"step": 1}])
    tail = RowTail(path)
    tail.read_new()
    path.unlink()
    assert tail.read_new() == ([], True)
    assert tail.read_new() == ([], False)
    write_jsonl(path, [{"step": 7}])
    assert tail.read_new() == ([{"step": 7}], False)


def test_damaged_lines_are_counted_and_left_out(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\nnot json\n[2]\n\n{"step": 3}\n')
    tail = RowTail(path)
    assert tail.read_new()[0] == [{"step": 1}, {"step": 3}]
    assert tail.num_damaged == 2


@given(
    rows=st.lists(st.dictionaries(st.text(), st.integers() | st.text(), max_size=3), max_size=6),
    cuts=st.lists(st.integers(min_value=0, max_value=400), max_size=6),
)
def test_wherever_a_file_is_cut_its_rows_come_once_and_in_order(
    rows: list, cuts: list[int], tmp_path_factory: pytest.TempPathFactory
):
    path = tmp_path_factory.mktemp("tail") / "rows.jsonl"
    whole = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    tail, found, written = RowTail(path), [], 0
    for cut in [*sorted(min(cut, len(whole)) for cut in cuts), len(whole)]:
        with path.open("ab") as stream:
            stream.write(whole[written:cut])
        written = cut
        new, is_replaced = tail.read_new()
        assert not is_replaced
        found += new
    assert found == rows
    assert tail.num_damaged == 0


def test_a_json_file_follows_its_changes(tmp_path: Path):
    path = tmp_path / "step.json"
    file = JsonFile(path)
    assert file.read() is None
    path.write_text('{"key": 1}')
    assert file.read() == {"key": 1}
    path.write_text('{"key": ')
    assert file.read() is None
    path.write_text("[1]")
    assert file.read() is None
    path.unlink()
    assert file.read() is None
