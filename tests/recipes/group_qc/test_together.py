"""Two processes teach Stage A what one teaches it."""

from pathlib import Path

import pytest
import torch
from recipe_runs import RecipeJob
from safetensors.torch import load_file

from .test_resume import read_stage_a


def load_taught(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "teach_stage_a" / "policy" / "model.safetensors")


@pytest.mark.slow
def test_two_processes_teach_what_one_teaches(
    tiny_run: Path, job: RecipeJob, tmp_path: Path
) -> None:
    together = {"compute.processes": 2, "grpo.entropy_bonus": 0}
    run = RecipeJob(job.recipe, {**job.settings, **together}).finish(tmp_path / "run")
    assert (run / "teach_stage_a" / "processes" / "1.log").exists()
    taught, alone = load_taught(run), load_taught(tiny_run)
    assert taught.keys() == alone.keys()
    for name, weight in taught.items():
        assert (weight - alone[name]).abs().max() < 1e-5, name
    assert read_stage_a(run) == read_stage_a(tiny_run)
