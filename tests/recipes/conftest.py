"""A tiny on_task run: real steps, real models, a handful of drawn screens."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

TINY = {
    "data.drawn.num_sessions": 40,
    "data.warmup_share": 0.3,
    "data.validation_share": 0.15,
    "data.test_share": 0.25,
    "data.drawn.width": 224,
    "data.drawn.height": 168,
    "data.drawn.activities": "[coding, video]",
    "model.max_pixels": 32_768,
    "sft.epochs": 1,
    "sft.batch_size": 8,
    "sft.save_every_steps": 1,
    "grpo.epochs": 1,
    "grpo.prompts_per_step": 4,
    "grpo.group_size": 2,
    "grpo.save_every_steps": 1,
    "grpo.heldout_every_steps": 2,
    "evaluation.num_latency_items": 2,
    "evaluation.num_heldout_items": 4,
}


def write_command(out: Path, *extra: str) -> list[str]:
    settings = [part for k, v in TINY.items() for part in ("--set", f"{k}={v}")]
    program = [sys.executable, "-m", "groupwise.cli", "run", "on_task", "--config", "demo"]
    return [*program, *settings, "--out", str(out), *extra]


def run_to_end(out: Path, *extra: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        write_command(out, *extra),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


@pytest.fixture(scope="session")
def build_command() -> Callable[..., list[str]]:
    """Gives the command line of a tiny run into a folder."""
    return write_command


@pytest.fixture(scope="session")
def run_tiny() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs it to the end."""
    return run_to_end


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("on_task") / "run"
    done = run_to_end(out)
    assert done.returncode == 0, done.stderr
    return out
