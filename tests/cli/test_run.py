"""``groupwise run``: exit codes, messages, and what is on disk afterwards.

What is killed, stopped, limited or a bug is a real process; so is one run to its end.
"""

import json
import os
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from small_disk import SmallDisk, mount_small_disk
from waiting import wait_until

from groupwise.cli.options import Job
from groupwise.cli.run import print_headline, print_preview
from groupwise.core import ConfigError, read_json, read_jsonl
from groupwise.evaluation.metrics import Metric, read_metrics, write_metrics
from groupwise.run.recipe import Preview, PreviewTable, ShownRow, find_recipe


def test_it_runs_to_the_end_and_says_what_came_out(tiny):
    tiny.use_real_torch()
    done = tiny.run("run", "tiny")
    assert done.returncode == 0
    assert tiny.list_done() == ["prepare", "audit", "write", "evaluate", "report"]
    assert "[3/5] write: writes rows slowly" in done.stderr
    assert "; left: evaluate, report" in done.stderr
    row = done.stdout.splitlines()[1].split()
    assert row[:5] == ["tiny", "test", "75.0%", "50.0–90.0%", "3"]
    assert done.stdout.splitlines()[-1] == "report: runs/tiny-demo/report.html"


def test_running_again_reuses_and_changing_redoes(tiny):
    tiny.call("run", "tiny")
    tiny.list_done()
    again = tiny.call("run", "tiny")
    assert (again.returncode, tiny.list_done()) == (0, [])
    assert again.stderr.count("reused in") == 5
    changed = tiny.call("run", "tiny", "--set", "factor=3")
    assert "changed since the last start: factor" in changed.stderr
    assert tiny.list_done() == ["write", "evaluate", "report"]


def list_stages(printed: str) -> list[str]:
    return [line.split()[1] for line in printed.splitlines() if line.startswith("│")]


def test_until_ends_after_a_step_and_the_next_start_goes_on(tiny):
    shown = tiny.call.succeed("run", "tiny", "--until", "audit", "--dry-run").stdout
    assert list_stages(shown) == ["prepare", "audit"]
    done = tiny.call("run", "tiny", "--until", "write")
    assert (done.returncode, tiny.list_done()) == (0, ["prepare", "audit", "write"])
    assert done.stdout == "ended after write: runs/tiny-demo/write\n"
    assert not (tiny.work / "runs/tiny-demo/report.html").exists()
    tiny.call("run", "tiny", "--resume", "--out", "runs/tiny-demo")
    assert tiny.list_done() == ["evaluate", "report"]


@pytest.mark.parametrize("extra", [[], ["--dry-run"]])
def test_until_a_step_that_is_not_there_names_those_that_are(tiny, extra):
    said = tiny.call.refuse("run", "tiny", "--until", "wirte", *extra)
    assert "no step 'wirte'" in said
    assert "expected prepare, audit, write, evaluate, report" in said
    assert not (tiny.work / "runs").exists()


def test_resume_takes_the_recorded_config(tiny):
    tiny.call("run", "tiny", "--set", "writer.rows=5", "--out", "out")
    (tiny.work / "out" / "write" / "rows.txt").unlink()
    tiny.list_done()
    done = tiny.call("run", "tiny", "--resume", "--out", "out")
    assert (done.returncode, tiny.list_done()) == (0, ["write", "report"])
    assert len((tiny.work / "out/write/rows.txt").read_text().splitlines()) == 5
    tiny.call.succeed("run", "tiny", "--resume", "--out", "out", "--set", "seed=4")
    config = json.loads((tiny.work / "out/manifest.json").read_text())["config"]
    assert (config["writer"]["rows"], config["seed"]) == (5, 4)


def test_debug_shows_the_traceback(tiny):
    for arguments in (("--debug", "run", "tinny"), ("run", "tinny", "--debug")):
        done = tiny.call(*arguments)
        assert done.returncode == 1
        assert "Traceback" in done.stderr
        assert "did you mean 'tiny'?" in done.stderr


def test_an_error_of_a_step_is_one_message_and_it_continues(tiny):
    done = tiny.call("run", "tiny", "--set", "writer.fail=data")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        2,
        "error: row 1 is broken; fix it.",
    )
    tiny.list_done()
    assert tiny.call("run", "tiny").returncode == 0
    assert tiny.list_done() == ["write resumed", "evaluate", "report"]


def test_a_bug_exits_1_with_its_traceback(tiny):
    done = tiny.run("run", "tiny", "--set", "writer.fail=bug")
    assert done.returncode == 1
    assert "AssertionError: a bug" in done.stderr


def test_a_dry_run_prints_facts_or_problems_and_writes_nothing(tiny):
    before = tiny.list_files()
    done = tiny.call.succeed("run", "tiny", "--dry-run", "--set", "writer.rows=7")
    assert ["rows", "7"] in [line.split() for line in done.stdout.splitlines()]
    assert list_stages(done.stdout) == ["prepare", "audit", "write", "evaluate", "report"]
    done = tiny.call("run", "tiny", "--dry-run", "--set", "source=gone.txt")
    assert (done.returncode, "ready" in done.stdout) == (2, False)
    assert "source: gone.txt does not exist" in done.stderr
    assert tiny.list_files() == before
    tiny.call("run", "tiny")
    before = {path: path.stat().st_mtime_ns for path in tiny.list_files()}
    tiny.call.succeed("run", "tiny", "--dry-run", "--set", "seed=9")
    assert {path: path.stat().st_mtime_ns for path in tiny.list_files()} == before


def test_a_folder_of_another_recipe_is_refused(tiny):
    (tiny.work / "out").mkdir()
    (tiny.work / "out" / "manifest.json").write_text('{"recipe": "other", "config": {}}')
    for more in ([], ["--resume"], ["--dry-run"]):
        said = tiny.call.refuse("run", "tiny", "--out", "out", *more)
        assert "holds a run of the recipe other" in said


def test_a_second_process_in_the_same_folder_is_refused(tiny):
    first = tiny.start("run", "tiny", "--set", "writer.wait_s=60", "--out", "out")
    try:
        wait_until((tiny.work / "out" / "write" / "rows.txt").is_file)
        said = tiny.call.refuse("run", "tiny", "--out", "out")
        assert "another process is working in out" in said
    finally:
        first.kill()
        first.communicate()
    assert tiny.call("run", "tiny", "--out", "out").returncode == 0


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_stopping_says_how_to_continue(tiny, number: signal.Signals):
    process = tiny.start("run", "tiny", "--set", "writer.wait_s=60", "--out", "out")
    wait_until((tiny.work / "out" / "write" / "rows.txt").is_file)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 130
    assert stderr.splitlines()[-1] == "stopped; the same command continues where it was"
    assert "Traceback" not in stderr
    tiny.list_done()
    assert tiny.call("run", "tiny", "--out", "out").returncode == 0
    assert tiny.list_done() == ["write resumed", "evaluate", "report"]
    tiny.call("run", "tiny", "--out", "whole")
    assert read_result(tiny.work / "out") == read_result(tiny.work / "whole")


def test_kill_9_then_resume_ends_like_an_uninterrupted_run(tiny):
    settings = ("--set", "writer.rows=6", "--out", "out")
    killed = tiny.run("run", "tiny", *settings, "--set", "writer.die_at=3")
    assert killed.returncode == -signal.SIGKILL
    assert tiny.call("run", "tiny", "--resume", "--out", "out").returncode == 0
    assert tiny.list_done()[-3:] == ["write resumed", "evaluate", "report"]
    tiny.call("run", "tiny", "--set", "writer.rows=6", "--out", "whole")
    assert read_result(tiny.work / "out") == read_result(tiny.work / "whole")


def test_a_limit_on_the_size_of_files(tiny):
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20))

    full = ("--set", "writer.fail=disk", "--out", "out")
    check_told(
        tiny.run("run", "tiny", *full, preexec_fn=limit), "the disk is full; free some space"
    )
    tiny.call.succeed("run", "tiny", "--out", "out")


@pytest.mark.parametrize("extra", [[], ["--dry-run"]])
def test_sharing_with_a_run_itself_is_refused(tiny, extra):
    tiny.call("run", "tiny", "--out", "runs/a")
    said = tiny.call.refuse("run", "tiny", "--out", "runs/b", "--share-with", "runs/a", *extra)
    assert "runs/a, which is a run; give" in said
    assert not (tiny.work / "runs/b").exists()


def test_recipes_do_not_share_a_folder_because_their_configs_have_one_name(tiny):
    recipes = [replace(find_recipe("tiny"), name=name) for name in ("tiny", "other")]
    folders = [Job(recipe, "demo", []).folder for recipe in recipes]
    assert folders == [Path("runs/tiny-demo"), Path("runs/other-demo")]


def test_rows_tables_and_facts_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    table = PreviewTable("Stages", ("stage", "will be"), [("prepare", "reused")])
    shown = [ShownRow("问题 [bold]?", "答案", ["a.png", "b.png"])]
    empty = PreviewTable("Nothing", ("a",), [])
    print_preview(Preview([("model", "[m]")], shown=shown, tables=[table, empty]))
    printed = capsys.readouterr().out
    for part in ("row 1 of 1", "问题 [bold]?", "pictures: a.png, b.png", "答案", "reused", "[m]"):
        assert part in printed
    assert "Nothing" not in printed
    assert printed.endswith("ready: nothing was written\n")


def test_long_rows_are_cut_and_cannot_steer_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_preview(Preview(shown=[ShownRow("\x1b[2J" + "a" * 2_000, "b")]))
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert "a … and 4 characters more" in " ".join(printed.replace("│", " ").split())


def test_problems_are_refused_below_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match=r"2 problem\(s\) stop this run:\n  one\n  two"):
        print_preview(Preview([("rows", "3")], ["one", "two"]))
    printed = capsys.readouterr().out
    assert "rows" in printed
    assert "ready" not in printed


def make_metric(name: str, value: float, n: int) -> Metric:
    return Metric(name, "test", value, value / 2, (1 + value) / 2, n, "digest")


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    metrics = [
        make_metric("sft/accuracy", 0.5, 8),
        make_metric("grpo/accuracy", 0.75, 8),
        make_metric("grpo/missed_defects", 0.25, 4),
        make_metric("grpo/f1:a", 0.33, 8),
    ]
    write_metrics(tmp_path / "evaluate" / "metrics.json", metrics)
    return tmp_path


def test_the_headline_is_printed_by_policy_and_split(
    measured: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = measured / "evaluate" / "metrics.json"
    more = [
        make_metric("sft/invalid_rate", 1.0, 8),
        Metric("grpo/accuracy", "real", 0.5, 0.4, 0.6, 5, "digest"),
    ]
    write_metrics(path, [*read_metrics(path), *more])
    print_headline(measured)
    lines = capsys.readouterr().out.splitlines()
    head, sft, grpo, real = (line.split() for line in lines)
    assert head == ["policy", "split", "accuracy", "95", "%", "interval", "n", "no", "answer"]
    assert sft == ["sft", "test", "50.0%", "25.0–75.0%", "8", "100.0%"]
    assert grpo == ["grpo", "test", "75.0%", "37.5–87.5%", "8", "–"]
    assert real == ["grpo", "real", "50.0%", "40.0–60.0%", "5", "–"]
    assert lines[0].index("accuracy") == lines[1].index("50.0%")


def test_without_metrics_nothing_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    print_headline(tmp_path)
    assert capsys.readouterr().out == ""


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


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_whoever_asks_twice_to_stop_does_not_wait(tiny, number: signal.Signals):
    """The writer takes its time to end when it is stopped; the second time it is left."""
    slow = ("--set", "writer.wait_s=60", "--set", "writer.slow_end_s=60")
    process = tiny.start("run", "tiny", *slow, "--out", "out")
    wait_until((tiny.work / "out/write/rows.txt").is_file)
    process.send_signal(number)
    wait_until((tiny.work / "out/write/ending.txt").is_file)
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
    wait_until((tiny.work / "out/write/rows.txt").is_file)
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
    wait_until((tiny.work / "out/write/rows.txt").is_file)
    process.send_signal(signal.SIGINT)
    told = next(line for line in process.stderr if line.startswith("stopped"))
    time.sleep(later_ms / 1000)
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=50)
    assert (process.returncode, rest) == (130, ""), told
