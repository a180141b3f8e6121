"""The run folder: one process at a time, and a manifest that says what was run."""

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from groupwise.core import DataError, RunError, RunFolder, describe_machine, digest_json
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
        with pytest.raises(RunError, match="another process is working in"), folder.lock():
            pass
        holder.kill()
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
