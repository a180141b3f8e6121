import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from groupwise.core import (
    RunError,
    RunFolder,
    append_jsonl,
    digest_file,
    is_locked,
    read_json,
    write_json,
)
from groupwise.evaluation.monitor import RunReader
from groupwise.evaluation.monitor.state import estimate_left

PLAN = ("prepare", "sft", "grpo", "report")


def read_phases(folder: Path, planned=PLAN) -> tuple[str, dict[str, str]]:
    manifest = read_json(folder / "manifest.json", dict)
    write_json(folder / "manifest.json", {**manifest, "plan": {name: {} for name in planned}})
    state = RunReader(folder).read()
    return state.phase, {step.name: step.phase for step in state.steps}


def test_a_folder_that_is_not_there_waits(tmp_path: Path):
    state = RunReader(tmp_path / "later").read()
    assert (state.phase, state.steps, state.current) == ("waiting", (), None)
    (tmp_path / "later").mkdir()
    (tmp_path / "later" / ".lock").touch()
    assert RunReader(tmp_path / "later").read().phase == "waiting"


def test_a_running_run_is_told_by_its_lock(held_run):
    held_run.write_manifest()
    held_run.finish("prepare", at_s=60, duration_s=50.5)
    held_run.start("sft", at_s=61)
    phase, steps = read_phases(held_run.folder)
    assert phase == "running"
    assert steps == {"prepare": "done", "sft": "running", "grpo": "left", "report": "left"}
    state = RunReader(held_run.folder).read()
    assert state.steps[0].duration_s == 50.5
    assert state.steps[1].duration_s == pytest.approx(539, abs=30)
    assert state.elapsed_s == pytest.approx(600, abs=30)


def test_a_killed_run_is_stopped_and_says_how_to_go_on(run):
    run.write_manifest()
    run.finish("prepare", at_s=60, duration_s=50)
    run.start("sft", at_s=61)
    phase, steps = read_phases(run.folder)
    assert (phase, steps["sft"], steps["grpo"]) == ("stopped", "stopped", "left")
    command = RunReader(run.folder).read().resume_command
    assert " ".join(command) == f"groupwise run on_task --out {run.folder} --resume"


def test_a_run_that_ended_between_steps_is_stopped_where_the_plan_is_known(run):
    run.write_manifest()
    run.finish("prepare", at_s=60, duration_s=50)
    assert read_phases(run.folder)[0] == "stopped"
    assert read_phases(run.folder, planned=())[0] == "finished"
    assert not RunReader(run.folder).read().is_plan_known


def test_a_finished_run(run):
    run.write_manifest()
    for place, name in enumerate(PLAN):
        run.finish(name, at_s=60 * place + 60, duration_s=50)
    phase, steps = read_phases(run.folder)
    assert phase == "finished"
    assert set(steps.values()) == {"done"}
    assert RunReader(run.folder).read().elapsed_s == 240


def test_a_step_that_the_recipe_got_later_is_none_of_an_old_run(run):
    run.write_manifest()
    run.finish("prepare", at_s=60, duration_s=50)
    run.finish("grpo", at_s=120, duration_s=50)
    run.finish("report", at_s=180, duration_s=50)
    phase, steps = read_phases(run.folder)
    assert (phase, list(steps)) == ("finished", ["prepare", "grpo", "report"])
    (run.folder / "report/step.json").unlink()
    run.start("report", at_s=170)
    phase, steps = read_phases(run.folder)
    assert (phase, steps["report"], "sft" in steps) == ("stopped", "stopped", False)


def test_steps_of_an_earlier_start_are_reused_and_later_ones_are_to_do_again(held_run):
    held_run.write_manifest()
    held_run.finish("prepare", at_s=-500, duration_s=50)
    held_run.start("sft", at_s=5)
    held_run.finish("grpo", at_s=-300, duration_s=50)
    _, steps = read_phases(held_run.folder)
    assert steps == {"prepare": "reused", "sft": "running", "grpo": "left", "report": "left"}


def test_without_a_plan_steps_stand_as_they_were_begun(held_run):
    held_run.write_manifest()
    held_run.finish("zeta", at_s=60, duration_s=50)
    held_run.finish("alpha", at_s=120, duration_s=50)
    held_run.start("middle", at_s=121)
    assert list(read_phases(held_run.folder, planned=())[1]) == ["zeta", "alpha", "middle"]


def test_a_manifest_alone_is_a_stopped_run(run):
    run.write_manifest()
    assert read_phases(run.folder, planned=())[0] == "stopped"


def test_rows_are_followed_and_judged(held_run):
    held_run.write_manifest()
    held_run.start("grpo", at_s=1)
    held_run.log("grpo", [{"step": 1, "reward": 0.5, "truncated": 0.9}])
    reader = RunReader(held_run.folder)
    training = reader.read().current
    assert training is not None
    assert (training.step, training.history.last_step, training.alarms) == ("grpo", 1, ())
    for step in range(2, 6):
        append_jsonl(held_run.folder / "grpo/metrics.jsonl", {"step": step, "truncated": 0.9})
    training = reader.read().current
    assert [alarm.name for alarm in training.alarms] == ["truncated"]
    assert len(training.history.read("truncated")) == 5
    held_run.log("grpo", [{"step": 1, "reward": 0.5, "truncated": 0.9}])
    assert reader.read().current.history.last_step == 1


def test_the_judges_counts_raise_their_alarm(held_run):
    held_run.write_manifest()
    held_run.start("grpo", at_s=1)
    held_run.log("grpo", [{"step": 1, "reward": 0.5}])
    report = {"judge": "J", "num_questions": 100, "no_verdict_rate": 0.4}
    write_json(held_run.folder / "grpo/judge.json", report)
    alarms = RunReader(held_run.folder).read().current.alarms
    assert [(alarm.name, alarm.subject) for alarm in alarms] == [("judge_no_verdict", "J")]


def test_time_left_comes_from_the_rows_of_this_attempt(held_run):
    held_run.write_manifest()
    held_run.start("grpo", at_s=1)
    held_run.log("grpo", [{"step": step, "reward": 0.5} for step in (10, 20, 30)])
    moment = (held_run.began + timedelta(seconds=580)).timestamp()
    os.utime(held_run.folder / "grpo/metrics.jsonl", (moment, moment))
    progress = {"num_steps": 40, "first_step": 20, "started_at": held_run.tell(480)}
    write_json(held_run.folder / "grpo/progress.json", progress)
    training = RunReader(held_run.folder).read().current
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
    assert RunReader(run.folder).read().current.step == "grpo"
    run.start("same", at_s=100)
    assert RunReader(run.folder).read().current.step == "same"


def test_damaged_lines_of_a_log_are_counted(run):
    run.write_manifest()
    run.start("sft", at_s=1)
    run.log("sft", [{"step": 1, "loss": 1.0}])
    with (run.folder / "sft/metrics.jsonl").open("a") as stream:
        stream.write("garbage\n")
    assert RunReader(run.folder).read().current.num_damaged == 1


def test_looking_at_a_lock_does_not_take_it(tmp_path: Path):
    assert not is_locked(tmp_path / ".lock")
    with RunFolder(tmp_path).lock():
        assert is_locked(tmp_path / ".lock")
        assert is_locked(tmp_path / ".lock")
    assert not is_locked(tmp_path / ".lock")
    with RunFolder(tmp_path).lock():
        pass


def test_the_lock_of_another_process_is_seen_and_goes_with_it(tmp_path: Path):
    code = (
        "import pathlib, sys\nfrom groupwise.core import RunFolder\n"
        "with RunFolder(pathlib.Path(sys.argv[1])).lock():\n    print('held', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"held\n"
        assert is_locked(tmp_path / ".lock")
        process.kill()
        process.wait()
    assert not is_locked(tmp_path / ".lock")


def test_a_sweep_names_its_cells(tmp_path: Path):
    write_json(tmp_path / "sweep.json", {})
    with pytest.raises(RunError, match="is a sweep, not a run, and none of its cells has begun"):
        RunReader(tmp_path).read()
    for name in ("a=1", "a=2"):
        write_json(tmp_path / "cells" / name / "manifest.json", {})
    with pytest.raises(RunError, match=r"give one of its 2 cells:\n  .*cells/a=1\n  .*cells/a=2"):
        RunReader(tmp_path).read()
    for number in range(3, 12):
        write_json(tmp_path / f"cells/a={number}" / "manifest.json", {})
    with pytest.raises(RunError, match="and 3 more"):
        RunReader(tmp_path).read()


def test_what_is_no_run_is_refused(tmp_path: Path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunError, match="is not a folder"):
        RunReader(tmp_path / "file").read()
    with pytest.raises(RunError, match="has files but holds no run"):
        RunReader(tmp_path).read()


def test_what_a_finished_step_did_not_write_is_refused_and_what_grows_is_not(run):
    run.write_manifest()
    run.log("sft", [{"step": 1, "loss": 1.0}])
    run.finish("sft", at_s=5, duration_s=5)
    path = run.folder / "sft" / "step.json"
    outputs = {"sft/metrics.jsonl": digest_file(run.folder / "sft/metrics.jsonl")}
    write_json(path, {**read_json(path, dict), "outputs": outputs})
    run.start("grpo", at_s=6)
    reader = RunReader(run.folder)
    for step in (1, 2):
        run.log("grpo", [{"step": step, "loss": 1.0}])
        assert reader.read().trainings[1].history.last_step == step
    run.log("sft", [{"step": 1, "loss": 0.5}])
    with pytest.raises(RunError, match=r"got sft/metrics.jsonl, which was changed"):
        RunReader(run.folder).read()
