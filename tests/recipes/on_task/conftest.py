"""A tiny on_task run: real steps, real models, a handful of drawn screens."""

from pathlib import Path

import pytest
from made_once import make_once
from recipe_runs import RecipeJob

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


@pytest.fixture(scope="session")
def job() -> RecipeJob:
    """The tiny run, to be started."""
    return RecipeJob("on_task", TINY)


@pytest.fixture(scope="session")
def tiny_run(job, tmp_path_factory) -> Path:
    """The tiny run, finished; only to be read."""
    return make_once("on_task", tmp_path_factory, lambda to: job.finish(to / "run")) / "run"
