"""Result files: continued after any end, written by one process, no item twice."""

import errno
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.core import (
    DataError,
    ResultFile,
    RunError,
    RunFolder,
    append_jsonl,
    check_folder,
    check_records,
    digest_file,
    explain_disk,
    read_json,
    read_jsonl,
    read_once,
    write_json,
    write_jsonl,
    write_text,
)

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
    with pytest.raises(DataError, match=r"line 3|row 2 of .*r\.jsonl has no group_id"):
        ResultFile(path)
    assert path.read_bytes() == before
    path.write_text("")
    ResultFile(path).close()  # the file was let go


def test_two_finished_rows_of_one_item_are_an_error(tmp_path: Path):
    path = make(tmp_path / "r.jsonl", [{"group_id": "a"}, {"group_id": "a", "failed": "x"}])
    with pytest.raises(DataError, match=r"row 2 of .*r\.jsonl is one more of a"):
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


def test_items_may_be_told_apart_by_another_field_or_by_several(tmp_path: Path):
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
    with ResultFile(tmp_path / "results.jsonl", key="label") as results:
        assert results.finished == {"pass", "fail"}


BAD = ("{", "[1]", "3", "nonsense")
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


def test_cut_at_every_byte_whole_rows_alone_are_read_and_gone_on_from(tmp_path: Path):
    path = tmp_path / "rows.jsonl"
    whole = write_whole(path)
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        num_whole = whole[: size + 1].count(b"\n")  # a row is whole without its newline too
        kept = read_jsonl(path)
        assert kept == ROWS[:num_whole]
        append_jsonl(path, {"n": "new"})
        assert read_jsonl(path) == [*kept, {"n": "new"}]
        assert path.read_bytes().endswith(b'{"n": "new"}\n')


def test_a_long_torn_line_is_cut_off(tmp_path: Path):
    path = tmp_path / "rows.jsonl"
    torn = json.dumps({"text": "x" * 200_000})[:-1]
    path.write_text('{"n": 1}\n' + torn)
    append_jsonl(path, {"n": 2})
    assert path.read_text() == '{"n": 1}\n{"n": 2}\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        *(
            (f'{{"n": 1}}\n\n{bad}\n{{"n": 2}}\n', "line 3 is not a JSON object; got")
            for bad in BAD
        ),
        ("nonsense\n", "line 1"),
        (None, r"cannot read .*No such file"),
    ],
)
def test_what_holds_no_rows_is_an_error(tmp_path: Path, text: str | None, words: str):
    if text is not None:
        (tmp_path / "rows.jsonl").write_text(text)
    with pytest.raises(DataError, match=words):
        read_jsonl(tmp_path / "rows.jsonl")


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


def test_a_file_that_got_its_old_time_back_is_read_again(tmp_path: Path):
    path = tmp_path / "code.py"
    for content in (b"first", b"other"):
        path.write_bytes(content)
        os.utime(path, (1, 1))
        assert read_once(path) == content


def test_a_json_file_is_what_it_should_hold_or_an_error(tmp_path: Path):
    path = tmp_path / "a.json"
    write_json(path, {"名": [1]})
    assert read_json(path, dict) == {"名": [1]}
    with pytest.raises(DataError, match=r"a.json is not a JSON list; got dict"):
        read_json(path, list)
    with pytest.raises(DataError, match=r"cannot read .*b.json \(No such file or directory\)"):
        read_json(tmp_path / "b.json", dict)
    path.write_text("[" * 200_000)
    with pytest.raises(DataError, match=r"a.json is not JSON"):
        read_json(path, list)


@given(st.binary(max_size=40))
def test_any_file_is_read_or_refused_in_words(tmp_path_factory: pytest.TempPathFactory, content):
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_bytes(content)
    for kind in (dict, list):
        with suppress(DataError):
            assert isinstance(read_json(path, kind), kind)


SIBLINGS = {"audit/audit.json": "[1]", "audit/notes.txt": "seen"}
FILES = {
    **SIBLINGS,
    "grpo/metrics.jsonl": '{"step": 1}\n',
    "grpo/policy/config.json": "{}",
    "grpo/policy/model.safetensors": "weights",
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    run = tmp_path / "run"
    for path, text in FILES.items():
        write_text(run / path, text)
    for step in ("audit", "grpo"):
        own = [path for path in FILES if path.startswith(f"{step}/")]
        write_json(run / step / "step.json", {"outputs": {p: digest_file(run / p) for p in own}})
    RunFolder(run).write_manifest(recipe="r", config={"a": 1.5, "b": "é"}, inputs={}, seed=3)
    return run


def test_a_run_that_nobody_changed_is_whole_wherever_it_lies(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere" / "copy"
    shutil.copytree(run, copy)
    shutil.rmtree(run)
    assert RunFolder(copy).read_manifest()["config"] == {"a": 1.5, "b": "é"}
    check_records(copy)
    check_folder(copy, "grpo/policy")


def test_a_manifest_without_a_recipe_is_damaged(run: Path) -> None:
    write_json(RunFolder(run).manifest_path, {"config": {}})
    with pytest.raises(RunError, match=r"manifest.json is damaged; got no recipe in it"):
        RunFolder(run).read_manifest()


@pytest.mark.parametrize(
    ("path", "how"),
    [
        ("audit/audit.json", "audit/audit.json, which was changed"),
        ("audit/sections.json", "audit/sections.json, which was added"),
        ("grpo/metrics.jsonl", "grpo/metrics.jsonl, which was changed"),
        ("grpo/policy/config.json", "grpo/policy/config.json, which was changed"),
    ],
)
def test_records_that_are_not_those_of_the_step_are_refused(run: Path, path: str, how: str) -> None:
    write_text(run / path, "[2]")
    with pytest.raises(RunError, match=f"{run} is not what its steps wrote; got {how}; take"):
        check_records(run)


def test_only_records_of_finished_steps_are_looked_at(run: Path) -> None:
    write_text(run / "audit/notes.txt", "other")
    write_text(run / "grpo/policy/model.safetensors", "others")
    (run / "grpo/policy/config.json").unlink()
    write_text(run / "sft/metrics.jsonl", "{}")
    check_records(run)
    write_text(run / "grpo/metrics.jsonl", "{}")
    check_records(run, "audit")


def test_what_is_written_for_people_may_be_written_again(run: Path) -> None:
    outputs = {"report.html": "a", "report/plots.json": "b"}
    write_json(run / "report/step.json", {"outputs": outputs})
    write_text(run / "report/plots.json", "[]")
    check_records(run)


def test_a_marker_leads_nowhere_else(run: Path, tmp_path: Path) -> None:
    """Neither a way out of the run is followed, nor a marker of another shape a bug."""
    write_text(tmp_path / "secret.json", "{}")
    write_json(run / "audit/step.json", {"outputs": {"audit/../../secret.json": "d"}})
    for path in SIBLINGS:
        (run / path).unlink()
    check_records(run)
    write_json(run / "audit/step.json", {"outputs": ["audit/audit.json"]})
    with pytest.raises(RunError, match=r"audit/step.json is damaged"):
        check_records(run)


def chain(cause: BaseException) -> RuntimeError:
    error = RuntimeError("a library gave up")
    error.__cause__ = cause
    return error


def make_error(number: int, name: str | None = None) -> OSError:
    return OSError(number, os.strerror(number), *([name] if name else []))


def tell(error: BaseException, folder: Path) -> str:
    with pytest.raises(RunError) as caught, explain_disk(folder):
        raise error
    assert caught.value.__cause__ is error
    return str(caught.value)


@pytest.mark.parametrize(
    "error",
    [
        make_error(errno.ENOSPC),
        make_error(errno.EDQUOT),
        make_error(errno.EFBIG),
        chain(make_error(errno.ENOSPC)),
        RuntimeError("Error while serializing: I/O error: No space left (os error 28)"),
        RuntimeError("[enforce fail at inline_container.cc:664] . unexpected pos 64 vs 0"),
        FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']"),
    ],
)
def test_a_full_disk_is_told_with_its_folder_and_what_to_do(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    message = tell(error, tmp_path / "not" / "made")
    assert message.startswith("the disk is full; free some space in /")
    assert str(tmp_path) in message
    assert message.endswith(" MiB are free) and run the same command again.")


def test_the_file_that_was_written_says_which_disk(tmp_path: Path):
    other = tmp_path / "other"
    message = tell(make_error(errno.ENOSPC, str(other / "file")), tmp_path / "run")
    assert f"free some space in {other} (" in message


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (make_error(errno.EROFS), "cannot write to {run} (Read-only file system)."),
        (make_error(errno.EROFS, "/x"), "cannot write to /x (Read-only file system)."),
        (make_error(errno.EACCES, "/x"), "cannot write to /x (Permission denied)."),
        (make_error(errno.EIO), "cannot write to {run} (Input/output error)."),
        (chain(make_error(errno.EROFS)), "cannot write to {run} (Read-only file system)."),
        (RuntimeError("I/O error (os error 30)"), "cannot write to {run} (Read-only file system)."),
    ],
)
def test_a_disk_that_takes_nothing_is_told(error: BaseException, words: str, tmp_path: Path):
    assert tell(error, tmp_path) == words.format(run=tmp_path)


@pytest.mark.parametrize(
    "error",
    [
        make_error(errno.ENOENT, "/x"),
        make_error(errno.EPERM),
        chain(make_error(errno.EPERM)),
        ValueError("a bug"),
        DataError("cannot read x (Permission denied)"),
        KeyboardInterrupt(),
    ],
)
def test_other_errors_stay_what_they_are(error: BaseException, tmp_path: Path):
    with pytest.raises(type(error)) as caught, explain_disk(tmp_path):
        raise error
    assert caught.value is error


def test_errors_of_writing_know_their_file():
    """A device that is always full: opening it works and writing to it does not."""
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    with pytest.raises(OSError, match="No space left") as caught:
        append_jsonl(Path("/dev/full"), {"a": 1})
    assert caught.value.filename == "/dev/full"
