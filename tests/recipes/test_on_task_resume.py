"""Killing a run in any step and running it again gives the uninterrupted run's numbers."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest


def read_numbers(run: Path) -> list[tuple[str, float, float, float]]:
    rows = json.loads((run / "evaluate" / "metrics.json").read_text())
    timeless = [row for row in rows if "latency" not in row["name"]]
    return [(row["name"], row["value"], row["low"], row["high"]) for row in timeless]


def is_training(step: str) -> Callable[[Path], bool]:
    return lambda run: any((run / step).glob("checkpoint-*/complete"))


def is_evaluating(run: Path) -> bool:
    return (run / "evaluate" / "sft.jsonl").exists()


def kill_when(command: list[str], run: Path, is_reached: Callable[[Path], bool]) -> None:
    """Start a run and ``kill -9`` it as soon as the moment is there."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )
    deadline = time.monotonic() + 300
    while not is_reached(run):
        assert process.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.mark.slow
@pytest.mark.parametrize(
    "is_reached",
    [is_training("sft"), is_training("grpo"), is_evaluating],
    ids=["sft", "grpo", "evaluate"],
)
def test_killed_run_ends_with_the_same_numbers(
    is_reached: Callable[[Path], bool],
    tiny_run: Path,
    tmp_path: Path,
    build_command: Callable[..., list[str]],
    run_tiny: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    run = tmp_path / "run"
    kill_when(build_command(run), run, is_reached)
    assert not (run / "report.html").exists()
    done = run_tiny(run, "--resume")
    assert done.returncode == 0, done.stderr
    assert "continuing" in done.stderr
    assert read_numbers(run) == read_numbers(tiny_run)
