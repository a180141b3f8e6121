"""A run as ``groupwise watch`` reads it from outside, at any moment of its life."""

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.cli.watch import estimate_left, read_state
from groupwise.core import (
    RunError,
    RunFolder,
    append_jsonl,
    read_json,
    write_json,
    write_jsonl,
)

PLAN = ("prepare", "sft", "grpo", "report")


class RunInProgress:
    """Writes what a run leaves: manifest, markers, rows; ``hold`` makes it run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.began = datetime.now(UTC) - timedelta(minutes=10)

    def write_manifest(self, **more: Any) -> None:
        manifest = {"recipe": "on_task", "config": {}, "started_at": self.tell(0), **more}
        write_json(self.folder / "manifest.json", manifest)

    def tell(self, after_s: float) -> str:
        return (self.began + timedelta(seconds=after_s)).isoformat(timespec="seconds")

    def finish(self, step: str, *, at_s: float, duration_s: float) -> None:
        (self.folder / step / "started.json").unlink(missing_ok=True)
        marker = {"finished_at": self.tell(at_s), "duration_s": duration_s}
        write_json(self.folder / step / "step.json", marker)

    def start(self, step: str, *, at_s: float) -> None:
        write_json(self.folder / step / "started.json", {"key": "k", "started_at": self.tell(at_s)})

    def log(self, step: str, rows: list[dict[str, Any]]) -> None:
        write_jsonl(self.folder / step / "metrics.jsonl", rows)


@pytest.fixture
def run(tmp_path: Path) -> RunInProgress:
    return RunInProgress(tmp_path / "demo")


@pytest.fixture
def held_run(run: RunInProgress) -> Iterator[RunInProgress]:
    """The same, with a process that works in it."""
    with RunFolder(run.folder).lock():
        yield run


def read_phases(folder: Path, planned=PLAN) -> tuple[str, dict[str, str]]:
    manifest = read_json(folder / "manifest.json", dict)
    write_json(folder / "manifest.json", {**manifest, "plan": {name: {} for name in planned}})
    state = read_state(folder)
    return state.phase, {step.name: step.phase for step in state.steps}


def test_a_folder_that_is_not_there_waits(tmp_path: Path):
    state = read_state(tmp_path / "later")
    assert (state.phase, state.steps, state.current) == ("waiting", (), None)
    (tmp_path / "later").mkdir()
    (tmp_path / "later" / ".lock").touch()
    assert read_state(tmp_path / "later").phase == "waiting"


def test_a_running_run_is_told_by_its_lock(held_run):
    held_run.write_manifest()
    held_run.finish("prepare", at_s=60, duration_s=50.5)
    held_run.start("sft", at_s=61)
    phase, steps = read_phases(held_run.folder)
    assert phase == "running"
    assert steps == {"prepare": "done", "sft": "running", "grpo": "left", "report": "left"}
    state = read_state(held_run.folder)
    assert state.steps[0].duration_s == 50.5
    assert state.steps[1].duration_s == pytest.approx(539, abs=30)
    assert state.elapsed_s == pytest.approx(600, abs=30)


def test_a_killed_run_is_stopped_and_says_how_to_go_on(run):
    run.write_manifest()
    run.finish("prepare", at_s=60, duration_s=50)
    run.start("sft", at_s=61)
    phase, steps = read_phases(run.folder)
    assert (phase, steps["sft"], steps["grpo"]) == ("stopped", "stopped", "left")


def test_a_finished_run(run):
    run.write_manifest()
    for place, name in enumerate(PLAN):
        run.finish(name, at_s=60 * place + 60, duration_s=50)
    phase, steps = read_phases(run.folder)
    assert phase == "finished"
    assert set(steps.values()) == {"done"}
    assert read_state(run.folder).elapsed_s == 240


def test_steps_of_an_earlier_start_are_reused_and_later_ones_are_to_do_again(held_run):
    held_run.write_manifest()
    held_run.finish("prepare", at_s=-500, duration_s=50)
    held_run.start("sft", at_s=5)
    held_run.finish("grpo", at_s=-300, duration_s=50)
    _, steps = read_phases(held_run.folder)
    assert steps == {"prepare": "reused", "sft": "running", "grpo": "left", "report": "left"}


def test_rows_are_followed_and_judged(held_run):
    held_run.write_manifest()
    held_run.start("grpo", at_s=1)
    held_run.log("grpo", [{"step": 1, "reward": 0.5, "invalid": 0.9}])
    training = read_state(held_run.folder).current
    assert training is not None
    assert (training.step.name, training.history.last_step, training.alarms) == ("grpo", 1, ())
    for step in range(2, 6):
        append_jsonl(held_run.folder / "grpo/metrics.jsonl", {"step": step, "invalid": 0.9})
    training = read_state(held_run.folder).current
    assert [alarm.name for alarm in training.alarms] == ["invalid"]
    assert len(training.history.read("invalid")) == 5
    with (held_run.folder / "grpo/metrics.jsonl").open("a") as stream:
        stream.write("garbage\n[2]\n")
    assert read_state(held_run.folder).current.num_damaged == 2
    held_run.log("grpo", [{"step": 1, "reward": 0.5, "invalid": 0.9}])
    assert read_state(held_run.folder).current.history.last_step == 1


def test_time_left_comes_from_the_rows_of_this_attempt(held_run):
    held_run.write_manifest()
    held_run.start("grpo", at_s=1)
    held_run.log("grpo", [{"step": step, "reward": 0.5} for step in (10, 20, 30)])
    moment = (held_run.began + timedelta(seconds=580)).timestamp()
    os.utime(held_run.folder / "grpo/metrics.jsonl", (moment, moment))
    progress = {"num_steps": 40, "first_step": 20, "started_at": held_run.tell(480)}
    write_json(held_run.folder / "grpo/progress.json", progress)
    training = read_state(held_run.folder).current
    assert training.num_steps == 40
    assert training.left_s == pytest.approx(80, abs=30)
    assert training.row_age_s == pytest.approx(20, abs=30)


def test_the_estimate_counts_down_and_never_below_zero():
    start = datetime(2026, 1, 1, tzinfo=UTC)
    progress = {"num_steps": 100, "first_step": 20, "started_at": start.isoformat()}
    row = start + timedelta(seconds=60)

    def estimate(last_step: int, wait_s: float) -> float | None:
        now = row + timedelta(seconds=wait_s)
        return estimate_left(progress, last_step, row_time=row, now=now)

    assert estimate(50, 0) == pytest.approx(100)
    assert estimate(50, 30) == pytest.approx(70)
    assert estimate(50, 500) == 0
    assert estimate(20, 0) is None


def test_a_run_shows_its_rewarded_training_when_none_runs(run):
    run.write_manifest()
    for place, name in enumerate(("sft", "grpo", "same")):
        run.finish(name, at_s=60 + place, duration_s=5)
        run.log(name, [{"step": 1, "loss": 1.0, **({"reward": 1.0} if name == "grpo" else {})}])
    assert read_state(run.folder).current.step.name == "grpo"
    run.start("same", at_s=100)
    assert read_state(run.folder).current.step.name == "same"


@given(
    losses=st.lists(st.floats(min_value=0, max_value=9) | st.none(), max_size=6),
    note=st.text(),
    cut=st.integers(min_value=0, max_value=400),
)
def test_wherever_a_file_is_cut_its_whole_rows_are_read_in_order(
    losses: list[float | None], note: str, cut: int, tmp_path_factory: pytest.TempPathFactory
):
    run = tmp_path_factory.mktemp("log")
    write_json(run / "manifest.json", {"recipe": "r", "started_at": "2026-01-01T00:00:00+00:00"})
    write_json(run / "sft/started.json", {"started_at": "2026-01-01T00:00:00+00:00"})
    path = run / "sft/metrics.jsonl"
    rows = [{"step": n, "loss": loss, "note": note} for n, loss in enumerate(losses)]
    whole = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    path.write_bytes(whole[:cut])
    num_rows = whole[:cut].count(b"\n")
    known = tuple(loss for loss in losses[:num_rows] if loss is not None)
    trainings = read_state(run).trainings
    assert (trainings[0].history.read("loss").values if trainings else ()) == known
    assert all(one.num_damaged == 0 for one in trainings)


def test_what_is_no_run_is_refused(tmp_path: Path):
    def refuse(folder: Path, words: str) -> None:
        with pytest.raises(RunError, match=words):
            read_state(folder)

    (tmp_path / "file").write_text("x")
    refuse(tmp_path / "file", "is not a folder")
    refuse(tmp_path, "has files but holds no run")
    write_json(tmp_path / "sweep.json", {})
    refuse(tmp_path, "is a sweep, not a run; none has begun")
    for name in ("a=1", "a=2"):
        write_json(tmp_path / "cells" / name / "manifest.json", {})
    refuse(tmp_path, r"give one of its 2 cells:\n  .*cells/a=1\n  .*cells/a=2")
