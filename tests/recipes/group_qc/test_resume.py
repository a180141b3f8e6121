"""Killing a run in any step and running it again gives the uninterrupted run's results."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from groupwise.core import read_jsonl


def read_numbers(run: Path) -> list[tuple[str, float, float, float]]:
    rows = json.loads((run / "evaluate" / "metrics.json").read_text())
    timeless = [row for row in rows if "latency" not in row["name"]]
    return [(row["name"], row["value"], row["low"], row["high"]) for row in timeless]


def read_stage_a(run: Path) -> dict[str, list[dict[str, Any]]]:
    return {
        path.name: [{**row, "timestamp": ""} for row in read_jsonl(path)]
        for path in sorted((run / "summarize").glob("*_stage_a.jsonl"))
    }


def is_describing(run: Path) -> bool:
    return sum(path.stat().st_size > 0 for path in run.glob("stage_a/*/*_stage_a.jsonl")) >= 2


def is_training(step: str) -> Callable[[Path], bool]:
    return lambda run: any((run / step).glob("checkpoint-*/complete"))


def kill_when(command: list[str], run: Path, is_reached: Callable[[Path], bool]) -> None:
    """Start a run and ``kill -9`` it as soon as the moment is there."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )
    deadline = time.monotonic() + 900
    while not is_reached(run):
        assert process.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.mark.slow
@pytest.mark.parametrize(
    "is_reached",
    [is_training("teach_stage_a"), is_describing, is_training("sft"), is_training("grpo")],
    ids=["teach_stage_a", "summarize", "sft", "grpo"],
)
def test_killed_run_ends_with_the_same_results(
    is_reached: Callable[[Path], bool],
    tiny_qc_run: Path,
    tmp_path: Path,
    build_qc_command: Callable[..., list[str]],
    run_tiny_qc: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    run = tmp_path / "run"
    kill_when(build_qc_command(run), run, is_reached)
    assert not (run / "report.html").exists()
    done = run_tiny_qc(run, "--resume")
    assert done.returncode == 0, done.stderr
    assert "continuing" in done.stderr
    assert read_stage_a(run) == read_stage_a(tiny_qc_run)
    assert read_numbers(run) == read_numbers(tiny_qc_run)
