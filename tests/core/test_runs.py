"""The run folder: one process at a time, and a manifest that says what was run."""

import json
import os
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest
from pydantic import TypeAdapter
from waiting import wait_until

from groupwise.core import (
    MAX_PLACES,
    DataError,
    EvaluationError,
    ProgressLine,
    RunError,
    RunFolder,
    describe_duration,
    describe_machine,
    digest_json,
    hush,
    is_locked,
    keep_freed_memory,
    keep_telling,
    memory,
    parse_value,
    read_free_memory,
    read_total_memory,
    report_places,
    take_lock,
)
from groupwise.core.errors import GroupwiseError

_HOLD = """
import sys
from pathlib import Path
from groupwise.core import RunFolder
with RunFolder(Path(sys.argv[1])).lock():
    print("held", flush=True)
    sys.stdin.read()
"""


def write_manifest(folder: RunFolder, seed: int = 3) -> None:
    folder.write_manifest(recipe="r", config={"a": 1}, inputs={"data": "d"}, seed=seed)


def test_only_one_process_holds_a_folder_and_a_killed_one_lets_go(tmp_path: Path):
    folder = RunFolder(tmp_path / "run")
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(folder.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert is_locked(folder.path / ".lock")
        with pytest.raises(RunError, match="another process is working in"), folder.lock():
            pass
        holder.kill()
    assert not is_locked(folder.path / ".lock")
    with folder.lock():
        assert (folder.path / ".lock").is_file()
    with folder.lock():
        pass


def test_the_lock_is_let_go_after_an_error(tmp_path: Path):
    folder = RunFolder(tmp_path)
    with pytest.raises(ValueError, match="inside"), folder.lock():
        raise ValueError("inside")
    with folder.lock():
        pass


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot write to"), RunFolder(tmp_path / "file").lock():
        pass
    with pytest.raises(RunError, match="cannot write"), RunFolder(tmp_path / "file/in").lock():
        pass


def test_the_manifest_says_what_was_run_and_the_history_every_start(tmp_path: Path):
    folder = RunFolder(tmp_path)
    write_manifest(folder)
    write_manifest(folder, seed=4)
    manifest = folder.read_manifest()
    assert (manifest["recipe"], manifest["seed"]) == ("r", 4)
    assert manifest["config_digest"] == digest_json({"a": 1})
    assert manifest["inputs"] == {"data": "d"}
    history = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    assert [row["seed"] for row in history] == [3, 4]
    assert history[1] == manifest


def test_a_folder_without_a_run_is_told(tmp_path: Path):
    with pytest.raises(RunError, match="holds no run; check --out"):
        RunFolder(tmp_path).read_manifest()


def test_the_machine_is_described_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    machine = describe_machine()
    assert machine["packages"]["torch"] == version("torch")
    assert machine["hardware"]["num_cpus"] == len(os.sched_getaffinity(0))
    assert json.loads(json.dumps(machine)) == machine
    monkeypatch.chdir(tmp_path)
    assert describe_machine()["git_revision"] is None


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({}, "it broke."),
        ({"got": 3, "expected": "4", "fix": "add 1"}, "it broke; got 3; expected 4; add 1."),
        ({"fix": "do it!"}, "it broke; do it!"),
        ({"got": "\n  a\n  b"}, "it broke; got \n  a\n  b"),
    ],
)
def test_an_error_is_one_sentence(parts: dict[str, object], message: str):
    assert str(GroupwiseError("it broke", **parts)) == message


@pytest.mark.parametrize("torn", [b"", b'{"recipe": "r", "con', b"\x00" * 40, b"[]"])
def test_a_torn_manifest_is_found_again_in_the_history(tmp_path: Path, torn: bytes):
    folder = RunFolder(tmp_path)
    write_manifest(folder)
    write_manifest(folder, seed=4)
    whole = folder.read_manifest()
    folder.manifest_path.write_bytes(torn)
    assert folder.read_manifest() == whole
    history = tmp_path / "history.jsonl"
    first, last = history.read_bytes().splitlines()
    history.write_bytes(first + b"\n" + last[:-30])
    assert folder.read_manifest()["seed"] == 3
    history.write_bytes(first.replace(b'"seed": 3', b'"seed": 5') + b"\n")
    with pytest.raises(DataError, match=r"manifest.json is torn; take it from a copy"):
        folder.read_manifest()
    write_manifest(folder, seed=6)
    assert folder.read_manifest()["seed"] == 6


def test_a_second_holder_is_refused_and_leaves_nothing_open(tmp_path: Path):
    path = tmp_path / "lock"
    assert not is_locked(path)
    first = take_lock(path, busy=RunError("taken"))
    assert is_locked(path)
    num_open = len(os.listdir("/proc/self/fd"))
    with pytest.raises(RunError, match="taken"):
        take_lock(path, busy=RunError("taken"))
    assert len(os.listdir("/proc/self/fd")) == num_open
    os.close(first)
    assert not is_locked(path)


def test_who_waits_is_told_and_then_holds_it(tmp_path: Path):
    path, told = tmp_path / "lock", threading.Event()
    first = take_lock(path, busy=RunError("taken"))
    held: list[int] = []
    waiter = threading.Thread(target=lambda: held.append(take_lock(path, busy=told.set)))
    waiter.start()
    assert told.wait(30)
    assert held == []
    os.close(first)
    waiter.join(30)
    assert is_locked(path)
    os.close(held[0])
    assert not is_locked(path)


def tick(*moments: float) -> Callable[[], float]:
    times = iter(moments)
    return lambda: next(times)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "about 0 s"), (89, "about 89 s"), (100, "about 2 min"), (9000, "about 2.5 h")],
)
def test_durations(seconds: float, words: str) -> None:
    assert describe_duration(seconds) == words


def test_lines_come_every_few_seconds_and_at_the_end() -> None:
    said: list[str] = []
    clock = tick(0.0, 30.0, 31.0, 40.0, 41.0)
    line = ProgressLine("verdicts", said.append, every_s=5, clock=clock)
    for num_done in (10, 12, 30, 50):
        line(num_done, 50)
    # 20 more in 10 s after a slow start: the 20 that are left take 10 s
    assert said == [
        "10 of 50 verdicts",
        "30 of 50 verdicts, about 10 s left",
        "50 of 50 verdicts, in 11 s",
    ]


def test_something_is_said_while_nothing_comes() -> None:
    said: list[str] = []
    with keep_telling(said.append, "prepare", every_s=0.01):
        wait_until(lambda: len(said) > 1)
    assert said[0] == "prepare: 0 s so far"
    said.clear()
    time.sleep(0.05)
    assert said == []


def test_nothing_is_said_beside_a_bar_or_other_lines() -> None:
    said: list[str] = []
    hush(True)
    try:
        with keep_telling(said.append, "grpo", every_s=0.01):
            time.sleep(0.05)
    finally:
        hush(False)
    with keep_telling(said.append, "grpo") as say:
        say("a line")
    assert said == ["a line"]
    steps: list[str] = []
    with keep_telling(said.append, "grpo", every_s=0.2):
        line = ProgressLine("steps", steps.append, every_s=0)
        for number in range(50):
            line(number, None)
            time.sleep(0.01)
    assert len(steps) == 50
    assert said == ["a line"]


def test_a_line_says_what_else_there_is_and_does_without_an_end() -> None:
    said: list[str] = []
    line = ProgressLine("items", said.append, every_s=0)
    line(3, None, "2.0/s")
    line(4, None)
    assert said == ["3 items, 2.0/s", "4 items"]


_COUNT_FAULTS = """
import resource, sys
from groupwise.core import keep_freed_memory

if sys.argv[1] == "kept":
    assert keep_freed_memory()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    b"x" * (40_000_000 + len(sys.argv[1]))
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
_NAMES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is asked")
def test_pages_of_freed_blocks_are_not_asked_for_again():
    environment = {name: value for name, value in os.environ.items() if name not in _NAMES}

    def count(kept: str) -> int:
        command = [sys.executable, "-c", _COUNT_FAULTS, kept]
        return int(subprocess.check_output(command, env=environment))

    assert count("kept") < count("given back") / 2


@pytest.mark.parametrize("name", _NAMES)
def test_what_the_environment_sets_stays(monkeypatch: pytest.MonkeyPatch, name: str):
    monkeypatch.setenv(name, "")
    assert not keep_freed_memory()


def test_other_systems_are_left_alone(monkeypatch: pytest.MonkeyPatch):
    for name in _NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    assert not keep_freed_memory()


@pytest.mark.parametrize("kind", ["", "memory"])
def test_a_control_group_leaves_what_it_allows(tmp_path, monkeypatch, kind):
    """As version 2 of control groups has it, and version 1."""

    def put(**groups):
        own, names = tmp_path / "cgroup", memory._FILES[kind]
        own.write_text(f"1:cpu:/\n5:{kind}:/above/own\n")
        for place, (most, used, cache) in groups.items():
            folder = tmp_path / "groups" / kind / place.replace("_", "/")
            folder.mkdir(parents=True, exist_ok=True)
            (folder / names[0]).write_text(f"{most}\n")
            (folder / names[1]).write_text(f"{used}\n")
            (folder / "memory.stat").write_text(f"anon 5\n{names[2]} {cache}\n")
        monkeypatch.setattr(memory, "_OWN_GROUP", own)
        monkeypatch.setattr(memory, "_GROUPS", tmp_path / "groups")

    put()
    before = read_total_memory()
    assert 0 < read_free_memory() <= before
    put(above=(10_000, 6_000, 500), above_own=("max", 6_000, 0))
    assert read_total_memory() == 10_000 < before
    assert read_free_memory() == 4_500
    put(above_own=(9_000, 9_500, 0))
    assert read_free_memory() == 0


def test_places_are_counted_and_the_first_are_kept():
    places = [f"row {number}" for number in range(MAX_PLACES + 5)]
    (finding,) = report_places("error", "leak", "{count} rows leak.", places)
    assert (finding.message, finding.count) == (f"{MAX_PLACES + 5} rows leak.", MAX_PLACES + 5)
    assert finding.where == tuple(places[:MAX_PLACES])
    assert finding.to_json()["where"] == places[:MAX_PLACES]


def test_nothing_is_found_without_places():
    assert report_places("error", "leak", "{count} rows leak.", []) == []


SHAPE = TypeAdapter(dict[str, list[int]])


def test_a_value_of_another_shape_is_refused_with_the_first_fault_and_its_place() -> None:
    assert parse_value({"a": ["1"]}, SHAPE, "unused") == {"a": [1]}
    with pytest.raises(DataError, match=r"^x\.json is odd; got a\.1: Input should be a valid int"):
        parse_value({"a": [1, None, None]}, SHAPE, "x.json is odd")
    with pytest.raises(EvaluationError, match="write it again"):
        parse_value([], SHAPE, "x.json is odd", error=EvaluationError, fix="write it again")
