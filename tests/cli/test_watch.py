"""``groupwise watch`` on runs at every moment of their life: what it reads, what it shows.

What waits, follows, is stopped or has a terminal of its own is a real process.
"""

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_folders import restate

from groupwise.cli.watch import estimate_left, read_state
from groupwise.core import RunError, RunFolder, append_jsonl, read_json, write_json, write_jsonl

PROGRAM = "    v1 = await answer_generate(problem)\n    return v1.answer"
TOLD = {
    "reward/executed": 47 / 97,
    "mean/tokens": 12.5,
    "facts": {
        "num": 99,
        "shares": {"executed": [47, 97]},
        "sums": {"tokens": [1250, 100], "cost": [0.125, 9]},
        "texts": {
            "failed": {
                "num": 50,
                "different": 14,
                "commonest": [["error", 30], ["time-out", 15]],
            },
            "program/math": {"num": 60, "different": 7, "commonest": [[PROGRAM, 40], ["x", 9]]},
            "program/code": {"num": 9, "different": 1, "commonest": [["a\nb\nc", 9]]},
        },
    },
}


def log_training(folder: Path, *, num_rows: int = 12, **last: float) -> None:
    rows = [
        {"step": step, "reward": 0.5 + 0.01 * step, "dead_groups": 0.25, "reward/format": 0.75}
        for step in range(1, num_rows + 1)
    ]
    write_jsonl(folder / "metrics.jsonl", [*rows[:-1], rows[-1] | TOLD | last])
    if (folder / "step.json").is_file():
        restate(folder)


@pytest.fixture
def logged(tiny) -> Path:
    """The training of a finished run, with its rows."""
    tiny.call("run", "tiny")
    log_training(tiny.work / "runs/tiny-demo/write")
    return tiny.work / "runs/tiny-demo/write"


def test_a_finished_run_is_shown_and_ends_with_0_as_does_one_that_runs(tiny, logged):
    done = tiny.call("watch", "runs/tiny-demo", "--once")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert re.fullmatch(r"tiny · tiny-demo  finished  \d[\d.]*\sm?s", lines[0])
    names = [line.split()[1] for line in lines if line.startswith("✓")]
    assert names == ["prepare", "audit", "write", "evaluate", "report"]
    assert re.search(r"^Reward +62\.0.% +51\.0.% +51\.0.% \.\. 62\.0.% ▁.*█$", done.stdout, re.M)
    assert re.search(r"^  format +75\.0.% ", done.stdout, re.M)
    assert "no alarms" in lines
    assert "\x1b" not in done.stdout
    chinese = tiny.call("watch", "runs/tiny-demo", "--once", "--language", "zh").stdout
    assert [word for word in ("已完成", "奖励", "无警报") if word not in chinese] == []
    with RunFolder(tiny.work / "runs/tiny-demo").lock():
        done = tiny.call.succeed("watch", "runs/tiny-demo", "--once")
    assert "tiny · tiny-demo  running" in done.stdout


def test_what_was_told_of_the_last_answers_is_shown_with_its_counts(tiny, logged):
    append_jsonl(logged / "metrics.jsonl", {"step": 13, "heldout/accuracy": 0.5})
    told = {"device": "H100 (cuda:0)", "peak_mib": 45678, "total_mib": 81559}
    write_json(logged / "memory.json", {"step": 12, "processes": [told, told]})
    restate(logged)
    said = tiny.call("watch", "runs/tiny-demo", "--once").stdout
    assert re.search(r"^  executed +47 of 97  48\.5.% ", said, re.M)
    assert re.search(r"^  tokens, mean +12\.5 ", said, re.M)
    assert re.search(r"^  format +75\.0.% ", said, re.M)
    lines = said[said.index("told of 99 answers, step 12") :].splitlines()
    assert lines[1:4] == [
        "  tokens  1,250",
        "  cost  0.125",
        "  failed  50, 14 different: error 30, time-out 15",
    ]
    assert lines[4].startswith("  program/math  60, 7 different: v1 = await")
    assert lines[5] == "  program/code  9, 1 different: a b c 9"
    assert lines[7] == "process 1: 45\u202f678 MiB at most, of 81\u202f559 MiB (H100 (cuda:0))"
    chinese = tiny.call("watch", "runs/tiny-demo", "--once", "--language", "zh").stdout
    assert "第 12 步 99 个回答的情况" in chinese
    assert "47 / 97" in chinese


def test_any_width_and_encoding_gets_the_page(tiny, logged, monkeypatch):
    log_training(logged, num_rows=400)
    for columns in (20, 40, 80, 200):
        monkeypatch.setenv("COLUMNS", str(columns))
        done = tiny.call.succeed("watch", "runs/tiny-demo", "--once")
        assert max(map(len, done.stdout.splitlines())) <= columns
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    monkeypatch.setenv("PYTHONUTF8", "0")
    tiny.use_real_torch()
    assert tiny.run("watch", "runs/tiny-demo", "--once").returncode == 0


def test_a_killed_run_says_so_and_how_to_continue(tiny):
    tiny.run("run", "tiny", "--set", "writer.die_at=1")
    done = tiny.call("watch", "runs/tiny-demo")
    assert done.returncode == 1
    assert "stopped before its end" in done.stdout
    command = "continue with: groupwise run tiny --out runs/tiny-demo --resume"
    assert command in done.stdout
    assert re.search(r"^✗ write +stopped", done.stdout, re.M)
    assert re.search(r"^· report +to do", done.stdout, re.M)
    assert tiny.call(*command.split()[3:]).returncode == 0
    assert tiny.call("watch", "runs/tiny-demo", "--once").returncode == 0


def test_a_run_is_followed_to_its_end_as_plain_text(tiny):
    tiny.use_real_torch()
    watching = tiny.start("watch", "runs/tiny-demo", "--every", "0.2")
    said = live_through(tiny, lambda: watching.stdout.readline())
    said += watching.stdout.read()
    assert watching.wait(timeout=60) == 0
    pages = said.split("-" * 40 + "\n")
    assert pages[0] == "tiny-demo  waiting: there is no run yet\n"
    assert any("▶ write   running" in page for page in pages)
    assert pages[-1].splitlines()[2:] == [
        "✓ prepare done 1\u00a0s",
        "✓ write   done 3\u00a0s",
    ]


def live_through(tiny, read: Callable[[], str]) -> str:
    """Be a run that begins when it is waited for, and ends when it is seen running."""
    folder, now = tiny.work / "runs/tiny-demo", datetime.now(UTC).isoformat()
    said = read_until(read, "waiting: there is no run yet")
    with RunFolder(folder).lock():
        marker = {"finished_at": now, "duration_s": 1.0}
        write_json(folder / "prepare/step.json", marker)
        write_json(folder / "write/started.json", {"started_at": now})
        plan = {"prepare": {}, "write": {}}
        write_json(folder / "manifest.json", {"recipe": "tiny", "started_at": now, "plan": plan})
        said += read_until(read, "running")
        said += read_until(read, "write")
        write_json(folder / "write/step.json", marker | {"duration_s": 3.0})
        (folder / "write/started.json").unlink()
    return said


def read_until(read: Callable[[], str], text: str) -> str:
    said = ""
    while text not in said:
        new = read()
        assert new, f"it ended before it said {text!r}: {said}"
        said += new
    return said


def test_a_run_that_is_not_there(tiny):
    said = tiny.call.refuse("watch", "runs/none", "--once")
    assert said == ("error: there is no run at runs/none; leave out --once to wait for it.\n")


def test_ctrl_c_leaves_quietly(tiny):
    tiny.use_real_torch()
    watching = tiny.start("watch", "runs/tiny-demo", "--every", "0.2")
    watching.stdout.readline()
    watching.send_signal(signal.SIGINT)
    _, said = watching.communicate(timeout=60)
    assert (watching.returncode, said) == (0, "")


def test_alarms_are_printed_with_what_to_do(tiny, logged):
    for step in range(13, 18):
        append_jsonl(logged / "metrics.jsonl", {"step": step, "dead_groups": 1.0})
    with (logged / "metrics.jsonl").open("a") as stream:
        stream.write('{"step": 18, "rew')
    restate(logged)
    done = tiny.call("watch", "runs/tiny-demo", "--once")
    assert "! all_groups_dead (step 17): all completions of a group earned" in done.stdout
    assert "  do: raise the temperature" in done.stdout
    assert "no alarms" not in done.stdout


def test_a_terminal_gets_one_page_that_changes(tiny):
    leader, follower = pty.openpty()
    environment = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS")}
    tiny.use_real_torch()
    watching = subprocess.Popen(
        [sys.executable, "-m", "groupwise.cli", "watch", "runs/tiny-demo", "--every", "0.2"],
        cwd=tiny.work,
        env=environment | {"TERM": "xterm-256color"},
        stdin=follower,
        stdout=follower,
        stderr=follower,
    )
    os.close(follower)
    said = live_through(tiny, lambda: os.read(leader, 65536).decode(errors="replace"))
    said += read_until(lambda: os.read(leader, 65536).decode(errors="replace"), "finished")
    assert watching.wait(timeout=60) == 0
    os.close(leader)
    assert "\x1b[" in said
    assert "-" * 40 not in said


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
    assert (training.name, training.history.last_step, training.alarms) == ("grpo", 1, ())
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
    assert read_state(run.folder).current.name == "grpo"
    run.start("same", at_s=100)
    assert read_state(run.folder).current.name == "same"


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
    (step,) = read_state(run).steps
    assert (step.history.read("loss").values, step.num_damaged) == (known, 0)


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
