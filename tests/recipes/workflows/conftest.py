"""A tiny run of workflows: real steps, a real model, a stub behind the operators."""

from pathlib import Path

import pytest
from made_once import make_once
from recipe_runs import RecipeJob

TINY = {
    "data.num_generated": 36,
    "data.max_train": 12,
    "data.max_validation": 2,
    "data.max_test": 3,
    "rivals.num_problems": 1,
    "sft.epochs": 1,
    "sft.batch_size": 4,
    "sft.save_every_steps": 2,
    "grpo.max_steps": 2,
    "grpo.prompts_per_step": 3,
    "grpo.group_size": 2,
    "grpo.save_every_steps": 1,
    "grpo.heldout_every_steps": 2,
    "evaluation.num_latency_items": 1,
    "evaluation.num_heldout_items": 3,
}


@pytest.fixture(scope="session")
def job() -> RecipeJob:
    """The tiny run, to be started."""
    return RecipeJob("workflows", TINY)


@pytest.fixture(scope="session")
def tiny_run(job: RecipeJob, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny run, finished; only to be read."""
    return make_once("workflows", tmp_path_factory, lambda to: job.finish(to / "run")) / "run"
