"""``groupwise watch`` on runs at every moment of their life.

What waits, follows, is stopped or has a terminal of its own is a real process.
"""

import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from run_folders import restate

from groupwise.core import RunFolder, append_jsonl, write_json, write_jsonl

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
