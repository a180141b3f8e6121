"""The recipe of one's own in examples/, which the docs show whole."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from groupwise.evaluation.metrics import read_metrics

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "own_task"
WORDS = ("run", "fault_reports:FaultReports", "--config", "fault_reports.yaml")


def call(*words: str) -> str:
    command = [sys.executable, "-P", "-m", "groupwise.cli", *WORDS, *words]
    done = subprocess.run(
        command,
        cwd=EXAMPLE,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_is_short():
    lines = (EXAMPLE / "fault_reports.py").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 120


def test_its_dry_run_reads_the_rows():
    said = call("--dry-run")
    assert "about 30 on 30 rows per epoch" in said
    assert "<|im_start|>user" in said
    assert "ready: nothing was written" in said


@pytest.mark.slow
def test_it_runs_the_whole_way(tmp_path: Path):
    call("--out", str(tmp_path / "run"))
    metrics = read_metrics(tmp_path / "run" / "evaluate" / "metrics.json")
    accuracy = {one.policy: one.value for one in metrics if one.measure == "accuracy"}
    assert accuracy["grpo"] > accuracy["majority"]
    assert (tmp_path / "run" / "report.html").is_file()
