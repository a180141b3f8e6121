"""The batch script of examples/slurm/, with a stand-in for Slurm's ``srun``."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from torch.distributed.run import parse_args

SCRIPT = Path(__file__).parents[2] / "examples/slurm/train.sbatch"


@pytest.fixture
def called(tmp_path: Path) -> list[str]:
    """Return the words that the script gives ``srun`` on two nodes of four GPUs."""
    srun = tmp_path / "srun"
    srun.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    srun.chmod(0o755)
    slurm = {"SLURM_NNODES": "2", "SLURM_GPUS_ON_NODE": "4", "RUN": str(tmp_path / "run")}
    slurm |= {"MASTER_ADDR": "gpu1"}
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", str(SCRIPT)],
        env={**os.environ, **slurm, "PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_it_can_be_read() -> None:
    for shell in ("sh", "bash"):
        subprocess.run([shell, "-n", str(SCRIPT)], check=True)
    asked = dict(
        line.removeprefix("#SBATCH --").partition("=")[::2]
        for line in SCRIPT.read_text().splitlines()
        if line.startswith("#SBATCH")
    )
    assert asked["ntasks-per-node"] == "1"
    assert asked["nodes"] == "2"


def test_its_command_is_one_that_torchrun_and_the_command_line_take(
    called: list[str], command_line: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    srun_option, program, *words = called
    assert (srun_option, program) == ("--kill-on-bad-exit=1", "torchrun")
    told = parse_args(words)
    assert (told.nnodes, told.nproc_per_node, told.max_restarts) == ("2", "4", 3)
    assert (told.rdzv_endpoint, told.module) == ("gpu1:29500", True)
    assert told.training_script == "groupwise"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    ended = command_line(*told.training_script_args, "--dry-run")
    assert ended.returncode == 0, ended.stderr
