"""A tiny group_qc run: real steps, real models, a handful of drawn groups."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

TINY = {
    "data.drawn.num_groups": 64,
    "data.drawn.width": 112,
    "data.drawn.height": 84,
    "data.teach_share": 0.3,
    "data.warmup_share": 0.15,
    "data.validation_share": 0.1,
    "data.test_share": 0.25,
    "teach.epochs": 3,
    "teach.reading_per_epoch": 8,
    "teach.save_every_steps": 5,
    "sft.epochs": 1,
    "sft.save_every_steps": 1,
    "grpo.epochs": 1,
    "grpo.prompts_per_step": 4,
    "grpo.group_size": 2,
    "grpo.max_new_tokens": 24,
    "grpo.save_every_steps": 1,
    "grpo.heldout_every_steps": 2,
    "evaluation.num_latency_items": 2,
    "evaluation.num_heldout_items": 4,
}


def write_command(out: Path, *extra: str) -> list[str]:
    settings = [part for k, v in TINY.items() for part in ("--set", f"{k}={v}")]
    program = [sys.executable, "-m", "groupwise.cli", "run", "group_qc", "--config", "demo"]
    return [*program, *settings, "--out", str(out), *extra]


def run_to_end(out: Path, *extra: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        write_command(out, *extra),
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


@pytest.fixture(scope="session")
def build_qc_command() -> Callable[..., list[str]]:
    """Gives the command line of a tiny run into a folder."""
    return write_command


@pytest.fixture(scope="session")
def run_tiny_qc() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs it to the end."""
    return run_to_end


@pytest.fixture(scope="session")
def tiny_qc_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("group_qc") / "run"
    done = run_to_end(out)
    assert done.returncode == 0, done.stderr
    return out
