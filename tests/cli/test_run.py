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

from groupwise.cli.printing import print_preview
from groupwise.cli.run import choose_folder
from groupwise.core import ConfigError, read_json, read_jsonl
from groupwise.pipeline import Preview, PreviewTable, ShownRow, find_recipe


def wait_for(path: Path) -> None:
    for _ in range(2000):
        if path.is_file():
            return
        time.sleep(0.01)
    raise AssertionError(f"{path} never came")


def list_files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if "__pycache__" not in path.parts}


def read_result(tiny, out: str) -> dict[str, str]:
    folder = tiny.work / out
    names = ("write/rows.txt", "evaluate/metrics.json", "report.html")
    return {name: (folder / name).read_text() for name in names}


def test_it_runs_to_the_end_and_says_what_came_out(tiny):
    tiny.use_real_torch()
    done = tiny.run("run", "tiny")
    assert done.returncode == 0
    assert tiny.list_done() == ["prepare", "audit", "write", "evaluate", "report"]
    assert "[3/5] write: writes rows slowly" in done.stderr
    assert "; left: evaluate, report" in done.stderr
    row = done.stdout.splitlines()[1].split()
    assert row == ["tiny", "75.0%", "50.0–90.0%", "3"]
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
    """Return the stages in the table of a dry run."""
    return [line.split()[1] for line in printed.splitlines() if line.startswith("│")]


def test_until_ends_after_a_step_and_the_next_start_goes_on(tiny):
    done = tiny.call("run", "tiny", "--until", "write")
    assert (done.returncode, tiny.list_done()) == (0, ["prepare", "audit", "write"])
    assert done.stdout == "ended after write: runs/tiny-demo/write\n"
    assert not (tiny.work / "runs/tiny-demo/report.html").exists()
    tiny.call("run", "tiny", "--resume", "--out", "runs/tiny-demo")
    assert tiny.list_done() == ["evaluate", "report"]


@pytest.mark.parametrize("extra", [[], ["--dry-run"]])
def test_until_a_step_that_is_not_there_names_those_that_are(tiny, extra):
    done = tiny.call("run", "tiny", "--until", "wirte", *extra)
    assert done.returncode == 2
    assert "no step 'wirte'" in done.stderr
    assert "expected prepare, audit, write, evaluate, report" in done.stderr
    assert not (tiny.work / "runs").exists()


def test_a_dry_run_shows_only_the_steps_until_the_last(tiny):
    done = tiny.call("run", "tiny", "--until", "audit", "--dry-run")
    assert done.returncode == 0
    assert list_stages(done.stdout) == ["prepare", "audit"]


def test_resume_takes_the_recorded_config(tiny):
    tiny.call("run", "tiny", "--set", "writer.rows=5", "--out", "out")
    (tiny.work / "out" / "write" / "rows.txt").unlink()
    tiny.list_done()
    done = tiny.call("run", "tiny", "--resume", "--out", "out")
    assert (done.returncode, tiny.list_done()) == (0, ["write", "report"])
    assert len((tiny.work / "out/write/rows.txt").read_text().splitlines()) == 5
    more = tiny.call("run", "tiny", "--resume", "--out", "out", "--set", "seed=4")
    assert more.returncode == 0
    config = json.loads((tiny.work / "out/manifest.json").read_text())["config"]
    assert (config["writer"]["rows"], config["seed"]) == (5, 4)


def test_all_config_problems_come_at_once(tiny):
    done = tiny.call("run", "tiny", "--set", "factor=x", "--set", "writer.rows=y", "--set", "z=1")
    assert done.returncode == 2
    assert "3 problem(s)" in done.stderr
    for key in ("factor:", "writer.rows:", "z: unknown key"):
        assert key in done.stderr


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


class TestDryRun:
    def test_it_prints_the_facts_and_writes_nothing(self, tiny):
        before = list_files(tiny.work)
        done = tiny.call("run", "tiny", "--dry-run", "--set", "writer.rows=7")
        assert done.returncode == 0
        assert ["rows", "7"] in [line.split() for line in done.stdout.splitlines()]
        assert list_stages(done.stdout) == ["prepare", "audit", "write", "evaluate", "report"]
        assert list_files(tiny.work) == before

    def test_it_lists_the_problems(self, tiny):
        before = list_files(tiny.work)
        done = tiny.call("run", "tiny", "--dry-run", "--set", "source=gone.txt")
        assert done.returncode == 2
        assert "source: gone.txt does not exist" in done.stderr
        assert "ready" not in done.stdout
        assert list_files(tiny.work) == before

    def test_it_changes_nothing_in_a_run_that_is_there(self, tiny):
        tiny.call("run", "tiny")
        before = {path: path.stat().st_mtime_ns for path in list_files(tiny.work)}
        assert tiny.call("run", "tiny", "--dry-run", "--set", "seed=9").returncode == 0
        assert {path: path.stat().st_mtime_ns for path in list_files(tiny.work)} == before


def test_a_folder_of_another_recipe_is_refused(tiny):
    (tiny.work / "out").mkdir()
    (tiny.work / "out" / "manifest.json").write_text('{"recipe": "other", "config": {}}')
    for more in ([], ["--resume"], ["--dry-run"]):
        done = tiny.call("run", "tiny", "--out", "out", *more)
        assert done.returncode == 2
        assert "holds a run of the recipe other" in done.stderr


def test_a_second_process_in_the_same_folder_is_refused(tiny):
    first = tiny.start("run", "tiny", "--set", "writer.wait_s=60", "--out", "out")
    try:
        wait_for(tiny.work / "out" / "write" / "rows.txt")
        second = tiny.call("run", "tiny", "--out", "out")
        assert second.returncode == 2
        assert "another process is working in out" in second.stderr
    finally:
        first.kill()
        first.communicate()
    assert tiny.call("run", "tiny", "--out", "out").returncode == 0


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_stopping_says_how_to_continue(tiny, number: signal.Signals):
    process = tiny.start("run", "tiny", "--set", "writer.wait_s=60", "--out", "out")
    wait_for(tiny.work / "out" / "write" / "rows.txt")
    process.send_signal(number)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 130
    assert stderr.splitlines()[-1] == "stopped; the same command continues where it was"
    assert "Traceback" not in stderr
    tiny.list_done()
    assert tiny.call("run", "tiny", "--out", "out").returncode == 0
    assert tiny.list_done() == ["write resumed", "evaluate", "report"]
    tiny.call("run", "tiny", "--out", "whole")
    assert read_result(tiny, "out") == read_result(tiny, "whole")


def test_kill_9_then_resume_ends_like_an_uninterrupted_run(tiny):
    settings = ("--set", "writer.rows=6", "--out", "out")
    killed = tiny.run("run", "tiny", *settings, "--set", "writer.die_at=3")
    assert killed.returncode == -signal.SIGKILL
    assert tiny.call("run", "tiny", "--resume", "--out", "out").returncode == 0
    assert tiny.list_done()[-3:] == ["write resumed", "evaluate", "report"]
    tiny.call("run", "tiny", "--set", "writer.rows=6", "--out", "whole")
    assert read_result(tiny, "out") == read_result(tiny, "whole")


class TestFullDisk:
    def check(self, tiny, out: Path | str, **options: object) -> None:
        done = tiny.run("run", "tiny", "--set", "writer.fail=disk", "--out", str(out), **options)
        assert done.returncode == 2
        assert "the disk is full; free some space" in done.stderr.splitlines()[-1]
        assert "Traceback" not in done.stderr

    def test_a_limit_on_file_size(self, tiny):
        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20))

        self.check(tiny, "out", preexec_fn=limit)
        assert tiny.call("run", "tiny", "--out", "out").returncode == 0

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
    def test_a_small_disk(self, tiny):
        disk = tiny.work / "disk"
        disk.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
        if not shutil.which("mount") or subprocess.run(mount, capture_output=True).returncode:
            pytest.skip("this machine does not allow mounting")
        try:
            self.check(tiny, disk / "out")
            assert tiny.call("run", "tiny", "--out", str(disk / "out")).returncode == 0
        finally:
            subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize("extra", [[], ["--dry-run"]])
def test_sharing_with_a_run_itself_is_refused(tiny, extra):
    tiny.call("run", "tiny", "--out", "runs/a")
    done = tiny.call("run", "tiny", "--out", "runs/b", "--share-with", "runs/a", *extra)
    assert done.returncode == 2
    assert "runs/a, which is a run; give" in done.stderr
    assert not (tiny.work / "runs/b").exists()


def test_recipes_do_not_share_a_folder_because_their_configs_have_one_name(tiny):
    recipes = [replace(find_recipe("tiny"), name=name) for name in ("tiny", "other")]
    folders = [choose_folder(recipe, "demo") for recipe in recipes]
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


RESULTS = ("prepare/text.json", "audit/audit.json", "write/rows.txt", "evaluate/metrics.json")
ROWS = ("--set", "writer.rows=2000")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with mount_small_disk(tmp_path / "disk", size_kib=512) as disk:
        yield disk


def read_result_faults(run: Path) -> dict[str, bytes]:
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
        assert read_result_faults(run) == read_result_faults(tiny.work / "whole")
        shutil.rmtree(run)
    assert {"start", "prepare", "audit", "write", "evaluate"} <= reached


def test_a_read_only_disk_is_told_at_the_start(tiny, disk: SmallDisk):
    run = disk.folder / "run"
    with disk.read_only():
        check_told(tiny.call("run", "tiny", "--out", run), "(Read-only file system)")
    assert tiny.call("run", "tiny", "--out", run).returncode == 0
    before = read_result_faults(run)
    with disk.read_only():
        check_told(tiny.call("run", "tiny", "--out", run), f"cannot write to {run} (Read-only")
    assert read_result_faults(run) == before


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
    assert read_result_faults(tiny.work / "out") == read_result_faults(tiny.work / "whole")


def wait_for_faults(path: Path) -> None:
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
    wait_for_faults(tiny.work / "out/write/rows.txt")
    process.send_signal(number)
    wait_for_faults(tiny.work / "out/write/ending.txt")
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
    assert read_result_faults(tiny.work / "out") == read_result_faults(tiny.work / "whole")


def test_ctrl_c_twice_at_once(tiny):
    """As a wrapper sends it that hands on what the terminal has sent already."""
    process = tiny.start("run", "tiny", "--set", "writer.wait_s=60", "--out", "out")
    wait_for_faults(tiny.work / "out/write/rows.txt")
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
    wait_for_faults(tiny.work / "out/write/rows.txt")
    process.send_signal(signal.SIGINT)
    told = next(line for line in process.stderr if line.startswith("stopped"))
    time.sleep(later_ms / 1000)
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=50)
    assert (process.returncode, rest) == (130, ""), told
