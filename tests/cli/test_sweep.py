"""``groupwise sweep``: cells, interruptions, failures, and what is refused.

Cells are real processes always; the sweep itself is one where it is interrupted.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_site import TinyRecipe, install_tiny
from waiting import wait_until

from groupwise.core import read_jsonl
from groupwise.run.sweep import read_sweep

GRID = ("sweep", "tiny", "--grid", "factor=1,2", "--grid", "seed=5,6", "--out", "grid")
CELLS = [f"factor={factor},seed={seed}" for factor in (1, 2) for seed in (5, 6)]
HALF = ("sweep", "tiny", "--grid", "factor=1", "--grid", "seed=5,6", "--out", "grid")


@pytest.fixture(scope="module")
def make_sweep(tmp_path_factory) -> Callable[..., Path]:
    """Makes the working folder of a finished sweep, once for each sweep; only to be copied."""
    made: dict[tuple[str, ...], Path] = {}

    def make(*sweep: str) -> Path:
        if sweep not in made:
            made[sweep] = place = tmp_path_factory.mktemp("sweep")
            site, work = place / "site", place / "work"
            install_tiny(site, work)
            log = {"PYTHONPATH": str(site), "TINY_LOG": str(work / "log.jsonl")}
            program = [sys.executable, "-m", "groupwise.cli"]
            subprocess.run([*program, *sweep], cwd=work, env=os.environ | log, check=True)
        return made[sweep] / "work"

    return make


@pytest.fixture
def swept(tiny, make_sweep) -> TinyRecipe:
    """The tiny recipe with a finished sweep of GRID."""
    shutil.copytree(make_sweep(*GRID), tiny.work, dirs_exist_ok=True)
    return tiny


@pytest.fixture
def half_swept(tiny, make_sweep) -> TinyRecipe:
    """The tiny recipe with a finished sweep of HALF."""
    shutil.copytree(make_sweep(*HALF), tiny.work, dirs_exist_ok=True)
    return tiny


def read_states(tiny) -> dict[str, str]:
    return {cell.name: cell.state for cell in read_sweep(tiny.work / "grid").cells}


def count_finished(tiny) -> Counter[str]:
    """Return how often each cell came to its end, over all processes there ever were."""
    log = tiny.work / "log.jsonl.finished"
    return Counter(row["run"] for row in read_jsonl(log)) if log.is_file() else Counter()


def count_steps(tiny) -> Counter[str]:
    return Counter(row["step"] for row in read_jsonl(tiny.work / "log.jsonl"))


def count_rows(tiny, cell: str) -> int:
    path = tiny.work / "grid" / "cells" / cell / "write" / "rows.txt"
    return len(path.read_text().splitlines()) if path.is_file() else 0


def list_running(tiny) -> list[str]:
    """Return the command lines of this test's processes that are left."""
    found: list[str] = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            is_here = (path / "cwd").resolve() == tiny.work
        except OSError:
            continue
        if is_here and "groupwise.cli" in command:
            found.append(command)
    return found


def test_every_cell_is_a_run_and_shared_work_is_done_once(tiny):
    done = tiny.run(*GRID)
    assert done.returncode == 0, done.stderr
    assert "grid: 4 cells: 4 done" in done.stdout
    assert "4 of 4 done" in done.stderr.splitlines()[-1]
    sweep = read_sweep(tiny.work / "grid")
    assert [(axis.key, axis.values) for axis in sweep.axes] == [
        ("factor", ("1", "2")),
        ("seed", ("5", "6")),
    ]
    assert [(cell.name, cell.state) for cell in sweep.cells] == [(name, "done") for name in CELLS]
    assert sweep.cells[3].coordinates == {"factor": "2", "seed": "6"}
    for cell in sweep.cells:
        config = json.loads((cell.folder / "manifest.json").read_text())["config"]
        assert {key: str(config[key]) for key in ("factor", "seed")} == cell.coordinates
        factor = int(cell.coordinates["factor"])
        rows = (cell.folder / "write" / "rows.txt").read_text().split()
        assert rows == [str(row * factor) for row in range(3)]
    assert count_finished(tiny) == dict.fromkeys(CELLS, 1)
    # The seed is in no step's settings, and evaluation counts rows only.
    steps = {"prepare": 1, "audit": 1, "write": 2, "evaluate": 2, "report": 4}
    assert count_steps(tiny) == steps


def test_again_keeps_all_and_needs_no_grid(swept):
    before = swept.list_files()
    for arguments in (GRID, ("sweep", "tiny", "--out", "grid")):
        again = swept.call.succeed(*arguments)
        assert again.stderr.count(" kept") == 4
    assert swept.list_files() == before
    assert count_finished(swept) == dict.fromkeys(CELLS, 1)


class TestDryRun:
    def test_it_says_what_there_is_to_run_and_writes_nothing(self, tiny):
        before = tiny.list_files()
        done = tiny.call.succeed(*GRID, "--dry-run")
        lines = done.stdout.splitlines()
        assert lines[:2] == ["factor  1, 2", "seed    5, 6"]
        assert lines[2] == "4 cells"
        assert lines[-1] == "ready: nothing was written"
        assert "1 at once" in done.stdout
        assert "2 at once" in tiny.call(*GRID, "--devices", "0,1", "--dry-run").stdout
        assert tiny.list_files() == before

    def test_seeds_are_an_axis(self, tiny):
        done = tiny.call.succeed(
            "sweep", "tiny", "--grid", "factor=1,2", "--seeds", "3", "--dry-run"
        )
        lines = done.stdout.splitlines()
        assert lines[:2] == ["factor  1, 2", "seed    0, 1, 2"]
        assert lines[2] == "6 cells"
        said = tiny.call.refuse("sweep", "tiny", "--grid", "seed=5", "--seeds", "3", "--dry-run")
        assert "there is another axis for it" in said

    def test_a_config_file_finds_its_recipe(self, tiny):
        shutil.copy(tiny.site / "configs" / "demo.yaml", tiny.work / "mine.yaml")
        done = tiny.call.succeed("sweep", "mine.yaml", "--grid", "seed=5,6", "--dry-run")
        assert "2 cells" in done.stdout
        done = tiny.call("sweep", "mine.yaml", "--config", "demo", "--grid", "seed=5,6")
        assert "two configs are given; got mine.yaml and --config demo" in done.stderr

    def test_it_says_how_far_a_sweep_is(self, tiny):
        (tiny.work / "broken-2").touch()
        tiny.call(*GRID[:-4], "--out", "grid")
        done = tiny.call(*GRID[:-4], "--out", "grid", "--dry-run")
        assert "2 cells: 1 done, 1 failed" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "messages"),
    [
        (["--grid", "faktor=1,2"], ["faktor: unknown key; did you mean 'factor'?"]),
        (["--grid", "factor=1,many"], ["factor: Input should be a valid integer", "'many'"]),
        (["--grid", "factor=1", "--jobs", "0"], ["--jobs"]),
        ([], ["holds no sweep"]),
        (["--set", "seed=1"], ["need --grid"]),
        (["--grid", "seed=1", "--devices", "0,0"], ["--devices 0,0: expected different devices"]),
        (["--grid", "seed=1", "--devices", "0,"], ["expected different devices, such as 0,1"]),
        (["--grid", "seed=1", "--devices", "0,1", "--jobs", "2"], ["leave --jobs out"]),
    ],
)
def test_mistakes_are_told_before_anything_is_written(tiny, arguments, messages):
    before = tiny.list_files()
    said = tiny.call.refuse("sweep", "tiny", *arguments)
    for message in messages:
        assert message in " ".join(said.split())
    assert tiny.list_files() == before


class TestInterruptions:
    SLOW = ("--set", "writer.rows=4", "--set", "writer.wait_s=0.15")

    def start(self, tiny, jobs: int, grid: tuple[str, ...] = GRID) -> subprocess.Popen[str]:
        return tiny.start(*grid, *self.SLOW, "--jobs", str(jobs))

    @pytest.mark.parametrize("jobs", [pytest.param(1, marks=pytest.mark.slow), 2])
    def test_killed_twice_and_resumed_what_is_done_is_not_done_again(self, tiny, jobs: int):
        first = self.start(tiny, jobs)
        wait_until(lambda: count_rows(tiny, CELLS[0]) >= 2)
        first.kill()
        first.communicate()
        wait_until(lambda: set(read_states(tiny).values()) == {"waiting"})
        second = self.start(tiny, jobs)
        wait_until(lambda: {"done", "running"} <= set(read_states(tiny).values()))
        second.kill()
        second.communicate()
        wait_until(lambda: list_running(tiny) == [])
        before = count_finished(tiny)
        last = tiny.run(*GRID, *self.SLOW, "--jobs", str(jobs))
        assert last.returncode == 0, last.stderr
        assert set(read_states(tiny).values()) == {"done"}
        kept = {cell for cell in CELLS if f"] {cell} kept" in last.stderr}
        assert kept
        assert count_finished(tiny) - before == Counter(set(CELLS) - kept)
        assert [count_rows(tiny, cell) for cell in CELLS] == [4] * 4
        log = read_jsonl(tiny.work / "log.jsonl")
        assert "resumed" in [row["state"] for row in log]

    def test_a_killed_sweep_leaves_no_process(self, tiny):
        process = tiny.start(*GRID, "--set", "writer.wait_s=60", "--jobs", "2")
        wait_until(lambda: count_rows(tiny, CELLS[0]) >= 1)
        assert len(list_running(tiny)) == 3
        process.kill()
        process.communicate()
        wait_until(lambda: list_running(tiny) == [])

    @pytest.mark.parametrize(
        "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
    )
    def test_stopping_ends_the_children_first(self, tiny, number: signal.Signals):
        slow = ("--set", "writer.rows=4", "--set", "writer.wait_s=0.6")
        process = tiny.start(*HALF, *slow, "--jobs", "2")
        wait_until(lambda: list(read_states_or_none(tiny).values()).count("running") == 2)
        # Both write the same rows: one does, and the other waits for it.
        wait_until(lambda: any(count_rows(tiny, cell) >= 1 for cell in CELLS[:2]))
        process.send_signal(number)
        _, stderr = process.communicate(timeout=60)
        assert process.returncode == 130
        assert stderr.splitlines()[-1] == "stopped; the same command continues where it was"
        assert "Traceback" not in stderr
        assert list_running(tiny) == []
        assert "running" not in read_states(tiny).values()
        log = (tiny.work / "grid" / "logs" / f"{CELLS[0]}.log").read_text()
        assert "stopped; the same command continues" in log
        assert tiny.call(*HALF, *slow).returncode == 0
        assert count_finished(tiny) == dict.fromkeys(CELLS[:2], 1)

    def test_a_second_sweep_in_the_folder_is_refused(self, tiny):
        process = self.start(tiny, 1, HALF)
        wait_until(lambda: count_rows(tiny, CELLS[0]) >= 1)
        assert "another process is working in grid" in tiny.call.refuse(*HALF, *self.SLOW)
        assert process.wait(60) == 0
        process.communicate()


def read_states_or_none(tiny) -> dict[str, str]:
    return read_states(tiny) if (tiny.work / "grid" / "sweep.json").is_file() else {}


def test_two_at_once_never_do_the_same_step_twice(tiny):
    slow = ("--set", "writer.wait_s=0.3")
    done = tiny.call.succeed(
        "sweep", "tiny", "--grid", "seed=1,2,3", *slow, "--out", "grid", "--jobs", "3"
    )
    assert count_steps(tiny) == {"prepare": 1, "audit": 1, "write": 1, "evaluate": 1, "report": 3}
    # The recipe leaves no predictions, so that its seeds cannot be reported; the sweep is done.
    assert "no report over seeds: " in done.stderr


OWN_REPORT = """

from dataclasses import replace


def report_study(runs, folder, language):
    if not (runs[0] / "write" / "rows.txt").is_file():
        raise DataError("a run has no rows")
    folder.mkdir(exist_ok=True)
    write_text(folder / "study.txt", " ".join(run.name for run in runs))
    return [f"{len(runs)} runs in {language}"]


recipe = replace(recipe, report_study=report_study)
"""


def test_a_recipe_may_report_on_its_runs_itself(half_swept):
    tiny = half_swept
    module = tiny.site / "tiny_recipe.py"
    module.write_text(module.read_text() + OWN_REPORT)
    done = tiny.call.succeed(*HALF)
    assert "2 runs in en" in done.stdout
    assert (tiny.work / "grid" / "study.txt").read_text() == " ".join(CELLS[:2])
    again = tiny.call("compare", "grid", "--language", "zh", "--out", "told")
    assert (again.returncode, again.stdout) == (0, "2 runs in zh\n")
    runs = [f"grid/cells/{name}" for name in CELLS[:2]]
    some = tiny.call("compare", "--together", *runs, "--out", "some")
    assert (some.returncode, some.stdout) == (0, "2 runs in en\n")
    shutil.copytree(tiny.work / runs[0], tiny.work / "own")
    both = tiny.call("compare", "--together", "own", "grid", runs[1], "--out", "both")
    assert (both.returncode, both.stdout) == (0, "3 runs in en\n")
    assert (tiny.work / "both" / "study.txt").read_text() == " ".join(["own", *CELLS[:2]])
    alone = tiny.call("compare", "own", "--out", "alone")
    assert (alone.returncode, alone.stdout) == (0, "1 runs in en\n")
    assert "1 runs" not in tiny.call("compare", "own").stdout
    methods = tiny.call(
        "compare", "--together", *runs, "--metric", "test/vqa_1", "--out", "methods"
    )
    assert "2 runs in" not in methods.stdout
    (tiny.work / runs[0] / "write" / "rows.txt").unlink()
    assert "a run has no rows" in tiny.call("compare", "--together", *runs, "--out", "none").stderr


class TestFailures:
    def test_one_is_recorded_the_rest_goes_on_and_again_retries_it(self, tiny):
        (tiny.work / "broken-2").touch()
        done = tiny.call("sweep", "tiny", "--grid", "factor=1,2", "--out", "grid")
        assert done.returncode == 1
        assert done.stderr.splitlines()[-1] == (
            "failed: factor=2; the same command runs them again and keeps what is done"
        )
        assert "2 cells: 1 done, 1 failed" in done.stdout
        (failed,) = [c for c in read_sweep(tiny.work / "grid").cells if c.state == "failed"]
        assert failed.error.splitlines()[0] == "exit code 2"
        assert failed.error.splitlines()[-1] == "error: the factor 2 is broken; fix it."
        log = tiny.work / "grid" / "logs" / "factor=2.log"
        assert "error: the factor 2 is broken; fix it." in log.read_text()
        (tiny.work / "broken-2").unlink()
        again = tiny.call("sweep", "tiny", "--grid", "factor=1,2", "--out", "grid")
        assert (again.returncode, again.stderr.count(" kept")) == (0, 1)
        assert count_finished(tiny) == {"factor=1": 1, "factor=2": 1}

    @pytest.mark.slow
    def test_a_killed_cell_is_told_by_its_signal(self, tiny):
        done = tiny.call("sweep", "tiny", "--grid", "writer.die_at=1,7", "--out", "grid")
        assert done.returncode == 1
        first, second = read_sweep(tiny.work / "grid").cells
        assert (first.state, second.state) == ("failed", "done")
        assert first.error.splitlines()[0] == "killed by SIGKILL"
        assert tiny.call("sweep", "tiny", "--out", "grid").returncode == 0
        assert read_sweep(tiny.work / "grid").cells[0].error == ""


def test_what_was_changed_or_removed_of_a_sweep_is_done_again(swept):
    (swept.work / "grid" / "cells" / CELLS[1] / "write" / "rows.txt").write_text("9\n")
    shutil.rmtree(swept.work / "grid" / "cells" / CELLS[3])
    assert read_states(swept)[CELLS[3]] == "waiting"
    done = swept.call.succeed(*GRID)
    assert f"{CELLS[1]} was done, but its files have changed" in done.stderr
    assert count_finished(swept) == {**dict.fromkeys(CELLS, 1), CELLS[1]: 2, CELLS[3]: 2}
    assert count_rows(swept, CELLS[1]) == 3
    assert set(read_states(swept).values()) == {"done"}


class TestAnotherGrid:
    def test_more_values_keep_what_is_done(self, half_swept):
        done = half_swept.call.succeed(*GRID)
        assert done.stderr.count(" kept") == 2
        assert list(read_states(half_swept)) == CELLS
        assert count_finished(half_swept) == dict.fromkeys(CELLS, 1)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--grid", "factor=1", "--grid", "seed=5"], "it has seed=6, which is missing now"),
            (["--grid", "factor=1,2"], "its axes are factor, seed, not factor"),
            (["--grid", "seed=5,6", "--grid", "factor=1"], "its axes are factor, seed, not seed"),
            (
                ["--grid", "factor=1,2", "--grid", "seed=5,6", "--set", "writer.rows=9"],
                "writer.rows was 3 and is 9",
            ),
        ],
    )
    def test_anything_else_is_refused_with_what_differs(self, half_swept, arguments, message: str):
        before = {path: path.stat().st_mtime_ns for path in half_swept.list_files()}
        said = half_swept.call.refuse("sweep", "tiny", *arguments, "--out", "grid")
        assert "grid holds another sweep" in said
        assert message in said
        assert {path: path.stat().st_mtime_ns for path in half_swept.list_files()} == before


def test_values_of_any_script_and_lists_make_folders(tiny):
    (tiny.work / "任务 一.txt").write_text("hello\n")
    tiny.call.succeed("sweep", "tiny", "--grid", "source=source.txt,任务 一.txt", "--out", "grid")
    _, second = read_sweep(tiny.work / "grid").cells
    assert second.coordinates == {"source": "任务 一.txt"}
    assert second.name.startswith("source=任务_一.txt-")
    assert os.listdir(tiny.work / "grid" / "cells" / second.name)


@pytest.mark.slow
def test_cells_are_dealt_out_over_devices_one_at_a_time_on_each(tiny):
    module = tiny.site / "sitecustomize.py"
    module.write_text(
        "import os, sys, time\n"
        "if 'run' in sys.orig_argv:\n"
        "    name = os.environ['CUDA_VISIBLE_DEVICES']\n"
        "    os.close(os.open(name, os.O_CREAT | os.O_EXCL))\n"
        "    open('devices.txt', 'a').write(name + ' ')\n"
        "    import atexit\n"
        "    atexit.register(os.unlink, os.path.abspath(name))\n"
    )
    done = tiny.run(*GRID, "--devices", "3,GPU-5")
    assert done.returncode == 0, done.stderr
    assert "2 running" in done.stderr
    devices = (tiny.work / "devices.txt").read_text().split()
    assert len(devices) == 4
    assert set(devices) == {"3", "GPU-5"}
