"""What lies in examples/: a recipe of one's own, the notebook, and the batch script for Slurm."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from torch.distributed.run import parse_args

from groupwise.evaluation.metrics import read_metrics
from groupwise.models.sources import find_place

ROOT = Path(__file__).parents[2]
OWN_TASK = ROOT / "examples" / "own_task"
WORDS = ("fault_reports:FaultReports", "--config", "fault_reports.yaml")
MODEL = "smollm2-135m-instruct"
NOTEBOOK = ROOT / "examples" / "first_run.ipynb"
SCRIPT = ROOT / "examples" / "slurm" / "train.sbatch"


def call(words: list[str], *, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        words,
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_own_task(*words: str) -> str:
    command = [sys.executable, "-P", "-m", "groupwise.cli", "run", *WORDS, *words]
    return call(command, cwd=OWN_TASK, PYTHONPATH=str(ROOT / "src"), COLUMNS="200")


def test_the_own_task_is_short_and_its_dry_run_reads_the_rows():
    lines = (OWN_TASK / "fault_reports.py").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 120
    said = run_own_task("--dry-run")
    assert "about 30 on 30 rows per epoch" in said
    assert "<|im_start|>user" in said
    assert "ready: nothing was written" in said


@pytest.mark.slow
def test_the_own_task_runs_the_whole_way(tmp_path: Path):
    run_own_task("--out", str(tmp_path / "run"))
    metrics = read_metrics(tmp_path / "run" / "evaluate" / "metrics.json")
    accuracy = {one.policy: one.value for one in metrics if one.measure == "accuracy"}
    assert accuracy["grpo"] > accuracy["majority"]
    assert (tmp_path / "run" / "report.html").is_file()


def list_code() -> list[dict[str, Any]]:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def test_the_notebook_is_kept_without_outputs():
    assert [cell["outputs"] for cell in list_code()] == [[]] * 4


@pytest.mark.slow
@pytest.mark.usefixtures("users_models")
def test_the_notebook_runs_from_top_to_bottom(tmp_path: Path):
    if find_place(MODEL) == MODEL:
        pytest.skip(f"`groupwise models fetch {MODEL}` brings the model")
    script = "\n".join("".join(cell["source"]) for cell in list_code())
    # Fewer steps: that it learns is measured elsewhere.
    assert '"max_steps": 10' in script
    script = script.replace('"max_steps": 10', '"max_steps": 2')
    said = call([sys.executable, "-c", script], cwd=tmp_path, OMP_NUM_THREADS="2")
    assert said.count("before:") == said.count("after:") == 3
    assert (tmp_path / "runs" / "words" / "report.html").is_file()


def test_the_batch_script_can_be_read() -> None:
    for shell in ("sh", "bash"):
        subprocess.run([shell, "-n", SCRIPT], check=True)
    asked = dict(
        line.removeprefix("#SBATCH --").partition("=")[::2]
        for line in SCRIPT.read_text().splitlines()
        if line.startswith("#SBATCH")
    )
    assert (asked["ntasks-per-node"], asked["nodes"]) == ("1", "2")


def test_the_batch_script_gives_words_that_torchrun_and_the_command_line_take(
    tmp_path: Path, command_line: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On two nodes of four GPUs, with a stand-in for Slurm's ``srun``."""
    (tmp_path / "srun").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (tmp_path / "srun").chmod(0o755)
    slurm = {"SLURM_NNODES": "2", "SLURM_GPUS_ON_NODE": "4", "RUN": str(tmp_path / "run")}
    slurm |= {"MASTER_ADDR": "gpu1", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    srun_option, program, *words = call(["sh", str(SCRIPT)], cwd=tmp_path, **slurm).splitlines()
    assert (srun_option, program) == ("--kill-on-bad-exit=1", "torchrun")
    told = parse_args(words)
    assert (told.nnodes, told.nproc_per_node, told.max_restarts) == ("2", "4", 3)
    assert (told.rdzv_endpoint, told.module) == ("gpu1:29500", True)
    assert told.training_script == "groupwise"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    command_line.succeed(*told.training_script_args, "--dry-run")
