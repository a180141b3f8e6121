"""Files that survive a crash: nothing torn is read as whole, nothing whole is lost."""

import json
import math
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.core import (
    DataError,
    append_jsonl,
    read_json,
    read_jsonl,
    write_json,
    write_jsonl,
    write_text,
)

ROWS = [{"n": 1, "text": "plain"}, {"n": 2, "text": "在 line\nbreak"}, {"n": 3, "text": "}"}]

_TEXT = st.text(st.characters(codec="utf-8"))
_JSON = st.recursive(
    st.none() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=6,
)
_ROWS = st.lists(st.dictionaries(_TEXT, _JSON, max_size=3), max_size=5)


def write_whole(path: Path) -> bytes:
    write_jsonl(path, ROWS)
    return path.read_bytes()


@given(rows=_ROWS)
def test_rows_come_back(tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, object]]):
    folder = tmp_path_factory.mktemp("rows")
    write_jsonl(folder / "all.jsonl", rows)
    assert read_jsonl(folder / "all.jsonl") == rows
    (folder / "one.jsonl").touch()
    for row in rows:
        append_jsonl(folder / "one.jsonl", row)
    assert (folder / "one.jsonl").read_bytes() == (folder / "all.jsonl").read_bytes()


def test_cut_at_every_byte_no_whole_row_is_lost_and_no_torn_one_is_read(tmp_path: Path):
    path = tmp_path / "rows.jsonl"
    whole = write_whole(path)
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        num_whole = whole[: size + 1].count(b"\n")  # a row is whole without its newline too
        assert read_jsonl(path) == ROWS[:num_whole]


def test_appending_after_a_cut_at_every_byte_gives_whole_rows(tmp_path: Path):
    path = tmp_path / "rows.jsonl"
    whole = write_whole(path)
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        kept = read_jsonl(path)
        append_jsonl(path, {"n": "new"})
        assert read_jsonl(path) == [*kept, {"n": "new"}]
        assert path.read_bytes().endswith(b'{"n": "new"}\n')


def test_a_long_torn_line_is_cut_off(tmp_path: Path):
    path = tmp_path / "rows.jsonl"
    torn = json.dumps({"text": "x" * 200_000})[:-1]
    path.write_text('{"n": 1}\n' + torn)
    append_jsonl(path, {"n": 2})
    assert path.read_text() == '{"n": 1}\n{"n": 2}\n'


@pytest.mark.parametrize("bad", ["{", "[1]", "3", "nonsense"])
def test_a_bad_line_elsewhere_is_an_error(tmp_path: Path, bad: str):
    path = tmp_path / "rows.jsonl"
    path.write_text(f'{{"n": 1}}\n\n{bad}\n{{"n": 2}}\n')
    with pytest.raises(DataError, match="line 3 is not a JSON object; got"):
        read_jsonl(path)


def test_a_whole_last_line_that_is_bad_is_an_error(tmp_path: Path):
    (tmp_path / "rows.jsonl").write_text("nonsense\n")
    with pytest.raises(DataError, match="line 1"):
        read_jsonl(tmp_path / "rows.jsonl")


def test_a_missing_file_is_an_error(tmp_path: Path):
    with pytest.raises(DataError, match=r"cannot read .*No such file"):
        read_jsonl(tmp_path / "none.jsonl")


def test_what_is_no_json_is_refused_and_the_old_file_stays(tmp_path: Path):
    path = tmp_path / "value.json"
    write_json(path, {"在": 1})
    for bad in (math.nan, math.inf, {1, 2}):
        with pytest.raises((ValueError, TypeError)):
            write_json(path, {"value": bad})
    assert path.read_text(encoding="utf-8") == '{\n  "在": 1\n}\n'
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "text.txt"
    write_text(path, "old")

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="No space"):
        write_text(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_json_file_is_what_it_should_hold_or_an_error(tmp_path: Path):
    path = tmp_path / "a.json"
    write_json(path, {"名": [1]})
    assert read_json(path, dict) == {"名": [1]}
    with pytest.raises(DataError, match=r"a.json is not a JSON list; got dict"):
        read_json(path, list)
    with pytest.raises(DataError, match=r"cannot read .*b.json \(No such file or directory\)"):
        read_json(tmp_path / "b.json", dict)


@given(st.binary(max_size=40))
def test_any_file_is_read_or_refused_in_words(tmp_path_factory: pytest.TempPathFactory, content):
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_bytes(content)
    for kind in (dict, list):
        with suppress(DataError):
            assert isinstance(read_json(path, kind), kind)


def test_a_json_file_nested_too_deeply_is_refused(tmp_path: Path):
    (tmp_path / "deep.json").write_text("[" * 200_000)
    with pytest.raises(DataError, match=r"deep.json is not JSON"):
        read_json(tmp_path / "deep.json", list)
