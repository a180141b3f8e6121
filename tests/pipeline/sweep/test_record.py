"""What readers of a sweep's folder are told, whatever state it is in."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from groupwise.core import GroupwiseError, digest_json, write_json, write_text
from groupwise.pipeline.sweep import Axis, read_sweep
from groupwise.pipeline.sweep.record import append_state, describe_process, make_record, read_states

CONFIG = {"a": 1}


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    cells = {"a=1": {"coordinates": {"a": "1"}, "config": CONFIG}}
    write_json(tmp_path / "sweep.json", make_record("tiny", [Axis("a", ("1",))], cells))
    return tmp_path


def read_state(sweep: Path) -> tuple[str, str]:
    (cell,) = read_sweep(sweep).cells
    return cell.state, cell.error


def finish(sweep: Path, config: object = CONFIG) -> None:
    manifest = {"config_digest": digest_json(config)}  # type: ignore[arg-type]
    write_json(sweep / "cells" / "a=1" / "manifest.json", manifest)
    append_state(sweep, "a=1", "done")


def test_a_cell_that_never_ran_is_waiting(sweep: Path):
    found = read_sweep(sweep)
    assert found.axes == (Axis("a", ("1",)),)
    assert found.cells[0].coordinates == {"a": "1"}
    assert found.cells[0].folder == sweep / "cells" / "a=1"
    assert read_state(sweep) == ("waiting", "")


def test_done_needs_the_run_with_its_config(sweep: Path):
    append_state(sweep, "a=1", "done")
    assert read_state(sweep) == ("waiting", "its folder no longer holds the run that was done")
    finish(sweep)
    assert read_state(sweep) == ("done", "")
    finish(sweep, {"a": 2})
    assert read_state(sweep)[0] == "waiting"


def test_the_last_row_counts(sweep: Path):
    append_state(sweep, "a=1", "failed", error="exit code 2")
    assert read_state(sweep) == ("failed", "exit code 2")
    finish(sweep)
    assert read_state(sweep) == ("done", "")


class TestRunning:
    def test_while_its_process_lives(self, sweep: Path):
        append_state(sweep, "a=1", "running", **describe_process(os.getpid()))
        assert read_state(sweep) == ("running", "")

    def test_never_after_its_process_ended(self, sweep: Path):
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
            append_state(sweep, "a=1", "running", **describe_process(process.pid))
            assert read_state(sweep)[0] == "running"
            process.kill()
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            assert read_state(sweep)[0] == "waiting", "nobody has asked for its exit code yet"
        assert read_state(sweep)[0] == "waiting"

    def test_another_process_with_its_number_is_not_it(self, sweep: Path):
        process = {**describe_process(os.getpid()), "began": "1"}
        append_state(sweep, "a=1", "running", **process)
        assert read_state(sweep)[0] == "waiting"

    def test_on_another_machine_nobody_can_tell(self, sweep: Path):
        process = {"host": socket.gethostname() + "-2", "pid": 2**22 + 1, "began": "1"}
        append_state(sweep, "a=1", "running", **process)
        assert read_state(sweep)[0] == "running"


def test_damaged_lines_are_counted_and_the_others_read(sweep: Path):
    finish(sweep)
    states = sweep / "states.jsonl"
    write_text(
        states, '{"cell": "a=1", "sta\n[]\n{"cell": "a=1", "state": "?"}\n' + states.read_text()
    )
    append_state(sweep, "a=1", "failed", error="x")
    with states.open("a") as stream:
        stream.write('{"torn')
    assert read_state(sweep) == ("failed", "x")
    assert (read_sweep(sweep).num_damaged, read_states(sweep)[1]) == (4, 4)
    append_state(sweep, "a=1", "waiting")
    assert (read_state(sweep)[0], read_sweep(sweep).num_damaged) == ("waiting", 3)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "holds no sweep"),
        ("{", "is not JSON"),
        ("[]", "is not a JSON object"),
        ('{"format": 9}', "format"),
    ],
)
def test_no_sweep_or_a_damaged_one_is_told(tmp_path: Path, text: str | None, words: str):
    if text is not None:
        write_text(tmp_path / "sweep.json", text)
    with pytest.raises(GroupwiseError, match=words):
        read_sweep(tmp_path)
