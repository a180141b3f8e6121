"""Two processes teach Stage A what one teaches it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from recipe_runs import RecipeJob
from safetensors.torch import load_file

from groupwise.core import read_json

from .test_resume import read_stage_a


def load_taught(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "teach_stage_a" / "policy" / "model.safetensors")


@pytest.mark.slow
def test_two_processes_teach_what_one_teaches(
    tiny_run: Path, job: RecipeJob, tmp_path: Path
) -> None:
    run, two = tmp_path / "run", RecipeJob(job.recipe, {**job.settings, "grpo.entropy_bonus": 0})
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [sys.executable, *torchrun, "-m", "groupwise", *two.list_arguments(run)]
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert len(read_json(run / "teach_stage_a/memory.json", dict)["processes"]) == 2
    taught, alone = load_taught(run), load_taught(tiny_run)
    assert taught.keys() == alone.keys()
    for name, weight in taught.items():
        assert (weight - alone[name]).abs().max() < 1e-5, name
    assert read_stage_a(run) == read_stage_a(tiny_run)
