"""Result files: continued after any end, written by one process, no item twice."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.core import DataError, ResultFile, RunError, read_jsonl

# Appends numbered rows until it is killed; every fifth fails at its first attempt.
_WORKER = """
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from groupwise.core import ResultFile
with ResultFile(Path(sys.argv[1])) as results:
    seen_failed = set(results.failed)
    print("open", flush=True)
    for number in range(200):
        name = f"g{number}"
        if name in results.finished:
            continue
        is_bad = number % 5 == 0 and name not in seen_failed
        results.append({"group_id": name, "text": "在" * 50, "failed": "bad" if is_bad else None})
"""


def make(path: Path, rows: list[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_row_is_on_disk_when_appended(tmp_path: Path):
    path = tmp_path / "deep" / "结果 a.jsonl"
    with ResultFile(path) as results:
        results.append({"group_id": "a", "text": "在"})
        assert path.read_text("utf-8") == '{"group_id": "a", "text": "在"}\n'
        results.append({"group_id": "b", "failed": "truncated picture"})
        assert (results.finished, results.failed) == ({"a"}, {"b"})
    with ResultFile(path) as results:
        assert (results.finished, results.failed) == ({"a"}, {"b"})


def test_a_failed_item_is_replaced_in_its_place(tmp_path: Path):
    path = tmp_path / "results.jsonl"
    with ResultFile(path) as results:
        results.append({"group_id": "a", "failed": "once"})
        results.append({"group_id": "b", "n": 1})
        results.append({"group_id": "a", "failed": "twice"})
        results.append({"group_id": "a", "n": 2})
        assert list(results.rows()) == [{"group_id": "a", "n": 2}, {"group_id": "b", "n": 1}]
        assert (results.finished, results.failed) == ({"a", "b"}, set())
    assert read_jsonl(path) == [{"group_id": "a", "n": 2}, {"group_id": "b", "n": 1}]


def test_a_finished_item_is_not_taken_again(tmp_path: Path):
    path = tmp_path / "results.jsonl"
    with ResultFile(path) as results:
        results.append({"group_id": "a", "n": 1})
        with pytest.raises(DataError, match="one more of a, which is finished"):
            results.append({"group_id": "a", "n": 2})
    assert read_jsonl(path) == [{"group_id": "a", "n": 1}]


@pytest.mark.parametrize("row", [{}, {"group_id": None}, {"group_id": 3}, {"id": "a"}])
def test_a_row_without_its_key_is_refused(tmp_path: Path, row: dict[str, object]):
    with ResultFile(tmp_path / "r.jsonl") as results, pytest.raises(DataError, match="group_id"):
        results.append(row)
    assert (tmp_path / "r.jsonl").read_bytes() == b""


def test_another_key(tmp_path: Path):
    with ResultFile(tmp_path / "r.jsonl", key="id") as results:
        results.append({"id": "a"})
        assert results.finished == {"a"}


def test_a_file_cut_at_every_byte_is_repaired_on_opening(tmp_path: Path):
    path = tmp_path / "r.jsonl"
    rows = [{"group_id": name, "text": "在 line\nbreak"} for name in "abc"]
    whole = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        num_whole = whole[: size + 1].count(b"\n")
        with ResultFile(path) as results:
            assert results.finished == set("abc"[:num_whole])
            kept = path.read_bytes()
            assert kept == whole[: len(kept)]
            assert kept.count(b"\n") == num_whole
            for row in rows[num_whole:]:
                results.append(row)
        assert path.read_bytes() == whole


@pytest.mark.parametrize("bad", ["{", "[1]", "3", '{"id": "a"}', '{"group_id": 1}', "[" * 99_999])
def test_a_line_that_is_no_row_is_named(tmp_path: Path, bad: str):
    path = tmp_path / "r.jsonl"
    path.write_text(f'{{"group_id": "a"}}\n\n{bad}\n{{"group_id": "b"}}\n')
    before = path.read_bytes()
    with pytest.raises(DataError, match="line 3"):
        ResultFile(path)
    assert path.read_bytes() == before
    path.write_text("")
    ResultFile(path).close()  # the file was let go


def test_two_finished_rows_of_one_item_are_an_error(tmp_path: Path):
    path = make(tmp_path / "r.jsonl", [{"group_id": "a"}, {"group_id": "a", "failed": "x"}])
    with pytest.raises(DataError, match="line 2 is one more of a"):
        ResultFile(path)


def test_a_second_process_is_refused(tmp_path: Path):
    path = tmp_path / "r.jsonl"
    with ResultFile(path) as results:
        results.append({"group_id": "a"})
        with pytest.raises(RunError, match="another process is writing"):
            ResultFile(path)
        command = [sys.executable, "-c", _WORKER, str(path)]
        found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert found.returncode == 1
        assert "RunError: another process is writing" in found.stderr
    assert read_jsonl(path) == [{"group_id": "a"}]
    ResultFile(path).close()


def test_a_closed_file_takes_no_rows(tmp_path: Path):
    results = ResultFile(tmp_path / "r.jsonl")
    results.close()
    results.close()
    with pytest.raises(RunError, match="closed"):
        results.append({"group_id": "a"})


def test_a_folder_that_cannot_be_written(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="cannot write"):
        ResultFile(tmp_path / "file" / "r.jsonl")


def test_a_full_disk_leaves_what_can_be_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "r.jsonl"

    def write_half(path: Path, row: object) -> None:
        with path.open("ab") as stream:
            stream.write(b'{"group_id": "b", "te')
        raise OSError(28, "No space left on device")

    with ResultFile(path) as results:
        results.append({"group_id": "a"})
        with monkeypatch.context() as full:
            full.setattr("groupwise.core.result_file.append_jsonl", write_half)
            with pytest.raises(OSError, match="No space"):
                results.append({"group_id": "b"})
        assert results.finished == {"a"}
        results.append({"group_id": "b"})
    assert read_jsonl(path) == [{"group_id": "a"}, {"group_id": "b"}]


@given(
    st.lists(
        st.tuples(st.sampled_from("abcd"), st.booleans(), st.booleans(), st.integers(0, 30)),
        max_size=20,
    )
)
def test_any_history_gives_the_last_row_of_each_item(
    tmp_path_factory: pytest.TempPathFactory, history: list[tuple[str, bool, bool, int]]
):
    """Appends, openings and torn lines in any order."""
    path = tmp_path_factory.mktemp("history") / "r.jsonl"
    expected: dict[str, dict[str, object]] = {}
    results = ResultFile(path)
    for number, (name, is_failed, is_killed, num_torn) in enumerate(history):
        row: dict[str, object] = {"group_id": name, "n": number, "failed": is_failed}
        if name in expected and not expected[name]["failed"]:
            continue
        results.append(row)
        expected[name] = row
        if is_killed:
            results._unlock()  # as the end of a process does
            with path.open("ab") as stream:
                stream.write(b'{"group_id": "torn", "text": "xxxxxxxx'[:num_torn])
            results = ResultFile(path)
    results.close()
    assert read_jsonl(path) == list(expected.values())


def test_killed_again_and_again_no_row_is_lost_and_none_is_twice(tmp_path: Path):
    path, whole = tmp_path / "r.jsonl", tmp_path / "whole.jsonl"
    command = [sys.executable, "-c", _WORKER]
    for _ in range(2):
        subprocess.run([*command, str(whole)], check=True, capture_output=True, timeout=60)
    chance = random.Random(6)
    num_kills = 0
    for _ in range(5):
        with subprocess.Popen([*command, str(path)], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            timer = threading.Timer(chance.uniform(0.0, 0.02), os.kill, (process.pid, 9))
            timer.start()
            process.wait(timeout=60)
            timer.cancel()
            num_kills += process.returncode == -signal.SIGKILL
        rows = {row["group_id"]: row for row in read_jsonl(path)}
        assert all(rows[f"g{n}"]["text"] for n in range(len(rows)))
    assert num_kills > 0
    for _ in range(2):
        subprocess.run([*command, str(path)], check=True, capture_output=True, timeout=60)
    assert path.read_bytes() == whole.read_bytes()


def test_items_may_be_told_apart_by_more_than_one_field(tmp_path: Path):
    def name(row: Mapping[str, Any]) -> str:
        return f"{row['group_id']}/{row['label']}"

    rows = [{"group_id": "g", "label": "pass"}, {"group_id": "g", "label": "fail"}]
    with ResultFile(tmp_path / "results.jsonl", key=name) as results:
        for row in rows:
            results.append(row)
        with pytest.raises(DataError, match="g/fail"):
            results.append(rows[1])
    with ResultFile(tmp_path / "results.jsonl", key=name) as results:
        assert results.finished == {"g/pass", "g/fail"}
        assert list(results.rows()) == rows
