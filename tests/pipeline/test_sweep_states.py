"""What readers of a sweep's folder are told, whatever state it is in."""

from pathlib import Path

import pytest

from groupwise.core import GroupwiseError, RunFolder, digest_json, write_json, write_text
from groupwise.pipeline.grid import Axis
from groupwise.pipeline.sweep import read_sweep

CONFIG = {"a": 1}
CELL = {"name": "a=1", "folder": "cells/a=1", "config_digest": digest_json(CONFIG)}


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    cell = CELL | {"coordinates": {"a": "1"}, "config": CONFIG}
    axes = [{"key": "a", "values": ["1"]}]
    write_json(
        tmp_path / "sweep.json", {"format": 1, "recipe": "tiny", "axes": axes, "cells": [cell]}
    )
    return tmp_path


def read_state(sweep: Path) -> tuple[str, str]:
    (cell,) = read_sweep(sweep).cells
    return cell.state, cell.error


def start(sweep: Path, config: object = CONFIG, *, done: tuple[str, ...] = ()) -> Path:
    """Write what a run with two steps leaves that has done some of them."""
    run = sweep / "cells" / "a=1"
    manifest = {"config_digest": digest_json(config), "plan": {"first": {}, "last": {}}}  # type: ignore[arg-type]
    write_json(run / "manifest.json", manifest)
    for step in done:
        write_json(run / step / "step.json", {})
    return run


def test_a_cell_that_never_ran_is_waiting(sweep: Path):
    found = read_sweep(sweep)
    assert found.axes == (Axis("a", ("1",)),)
    assert found.cells[0].coordinates == {"a": "1"}
    assert found.cells[0].folder == sweep / "cells" / "a=1"
    assert read_state(sweep) == ("waiting", "")


def test_done_needs_the_whole_run_with_its_config(sweep: Path):
    start(sweep, done=("first",))
    assert read_state(sweep) == ("waiting", "")
    start(sweep, done=("first", "last"))
    assert read_state(sweep) == ("done", "")
    start(sweep, {"a": 2}, done=("first", "last"))
    assert read_state(sweep) == ("waiting", "its folder no longer holds the run that was done")


def test_a_failed_cell_says_how_until_it_runs_again(sweep: Path):
    run = start(sweep, done=("first",))
    (sweep / "failed").mkdir()
    write_text(sweep / "failed" / "a=1.txt", "exit code 2")
    assert read_state(sweep) == ("failed", "exit code 2")
    with RunFolder(run).lock():
        assert read_state(sweep) == ("running", "")


def test_a_cell_runs_while_a_process_holds_its_folder(sweep: Path):
    run = start(sweep, done=("first", "last"))
    with RunFolder(run).lock():
        assert read_state(sweep) == ("running", "")
    assert read_state(sweep) == ("done", "")


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
