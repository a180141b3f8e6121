"""A full disk, a read-only one, a clock that jumps, Ctrl-C twice: the same command goes on.

What was written before stays readable, and the result is that of an undisturbed run.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_disk import SmallDisk, mount_small_disk

from groupwise.core import read_json, read_jsonl

RESULTS = ("prepare/text.json", "audit/audit.json", "write/rows.txt", "evaluate/metrics.json")
ROWS = ("--set", "writer.rows=2000")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with mount_small_disk(tmp_path / "disk", size_kib=512) as disk:
        yield disk


def read_result(run: Path) -> dict[str, bytes]:
    return {name: (run / name).read_bytes() for name in (*RESULTS, "report.html")}


def check_readable(run: Path) -> None:
    """Whatever is there can be read, and nothing half-written has a name of its own."""
    for path in run.rglob("*.json"):
        read_json(path, list if path.name == "metrics.json" else dict)
    for path in run.rglob("*.jsonl"):
        read_jsonl(path)


def check_told(done: subprocess.CompletedProcess[str], words: str) -> None:
    assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
    assert words in done.stderr.splitlines()[-1]


def test_a_disk_that_is_full_at_any_moment(tiny, disk: SmallDisk):
    """The less there is left, the earlier the run ends: in its lock, its manifest, each step."""
    tiny.call("run", "tiny", *ROWS, "--out", "whole")
    reached: set[str] = set()
    for leave_kib in range(0, 80, 8):
        run = disk.folder / f"run{leave_kib}"
        disk.fill(leave_kib=leave_kib)
        tiny.list_done()
        done = tiny.call("run", "tiny", *ROWS, "--out", run)
        if done.returncode == 0:
            break
        reached |= {*tiny.list_done()} or {"start"}
        check_told(done, "the disk is full; free some space in ")
        check_told(done, f"{disk.folder}")
        check_told(done, " MiB are free) and run the same command again.")
        check_readable(run)
        disk.make_room()
        assert tiny.call("run", "tiny", *ROWS, "--out", run).returncode == 0
        assert read_result(run) == read_result(tiny.work / "whole")
        shutil.rmtree(run)
    assert {"start", "prepare", "audit", "write", "evaluate"} <= reached


def test_a_read_only_disk_is_told_at_the_start(tiny, disk: SmallDisk):
    run = disk.folder / "run"
    with disk.read_only():
        check_told(tiny.call("run", "tiny", "--out", run), "(Read-only file system)")
    assert tiny.call("run", "tiny", "--out", run).returncode == 0
    before = read_result(run)
    with disk.read_only():
        check_told(tiny.call("run", "tiny", "--out", run), f"cannot write to {run} (Read-only")
    assert read_result(run) == before


@pytest.mark.parametrize("jump_s", [-(10**9), 10**9])
def test_a_clock_that_jumps(tiny, jump_s: int, monkeypatch: pytest.MonkeyPatch):
    """Backwards and forwards by decades between two attempts; only stamps tell of it."""
    first = tiny.call("run", "tiny", "--set", "writer.fail=data", "--out", "out")
    assert first.returncode == 2
    now = time.time()
    with monkeypatch.context() as jumped:
        jumped.setattr(time, "time", lambda: now + jump_s)
        for path in (tiny.work / "out").rglob("*"):
            os.utime(path, (now - jump_s, now - jump_s))
        tiny.list_done()
        assert tiny.call("run", "tiny", "--out", "out").returncode == 0
        assert tiny.list_done() == ["write resumed", "evaluate", "report"]
        assert tiny.call("run", "tiny", "--out", "out").returncode == 0
        assert tiny.list_done() == []
        assert tiny.call("watch", "out", "--once").returncode == 0
    tiny.call("run", "tiny", "--out", "whole")
    assert read_result(tiny.work / "out") == read_result(tiny.work / "whole")


def wait_for(path: Path) -> None:
    for _ in range(6000):
        if path.is_file():
            return
        time.sleep(0.01)
    raise AssertionError(f"{path} never came")


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_whoever_asks_twice_to_stop_does_not_wait(tiny, number: signal.Signals):
    """The writer takes its time to end when it is stopped; the second time it is left."""
    slow = ("--set", "writer.wait_s=60", "--set", "writer.slow_end_s=60")
    process = tiny.start("run", "tiny", *slow, "--out", "out")
    wait_for(tiny.work / "out/write/rows.txt")
    process.send_signal(number)
    wait_for(tiny.work / "out/write/ending.txt")
    process.send_signal(number)
    _, stderr = process.communicate(timeout=50)
    assert process.returncode == 130
    assert stderr.splitlines()[-1] == "stopped; the same command continues where it was"
    assert "Traceback" not in stderr
    check_readable(tiny.work / "out")
    (tiny.work / "out/write/ending.txt").unlink()
    tiny.list_done()
    assert tiny.call("run", "tiny", "--out", "out").returncode == 0
    assert tiny.list_done() == ["write resumed", "evaluate", "report"]
    tiny.call("run", "tiny", "--out", "whole")
    assert read_result(tiny.work / "out") == read_result(tiny.work / "whole")


def test_ctrl_c_twice_at_once(tiny):
    """As a wrapper sends it that hands on what the terminal has sent already."""
    process = tiny.start("run", "tiny", "--set", "writer.wait_s=60", "--out", "out")
    wait_for(tiny.work / "out/write/rows.txt")
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=50)
    assert process.returncode == 130
    assert stderr.count("stopped; the same command continues where it was") == 1
    assert "Traceback" not in stderr
    assert tiny.call("run", "tiny", "--out", "out").returncode == 0


@pytest.mark.parametrize(
    "later_ms", [0, 10, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 5, 20, 40))]
)
def test_ctrl_c_while_python_itself_ends(tiny, later_ms: int):
    process = tiny.start("run", "tiny", "--set", "writer.wait_s=60", "--out", "out")
    wait_for(tiny.work / "out/write/rows.txt")
    process.send_signal(signal.SIGINT)
    told = next(line for line in process.stderr if line.startswith("stopped"))
    time.sleep(later_ms / 1000)
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=50)
    assert (process.returncode, rest) == (130, ""), told
