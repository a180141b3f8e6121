"""A tiny group_qc run: real steps, real models, a handful of drawn groups."""

from pathlib import Path

import pytest
from made_once import make_once
from recipe_runs import RecipeJob
from tile_photos import write_photos

TINY = {
    "data.drawn.num_groups": 64,
    "data.drawn.width": 112,
    "data.drawn.height": 84,
    "data.teach_share": 0.3,
    "data.warmup_share": 0.15,
    "data.validation_share": 0.1,
    "data.test_share": 0.25,
    "teach.epochs": 3,
    "teach.photos_per_epoch": 48,
    "teach.reading_per_epoch": 8,
    "teach.save_every_steps": 5,
    "sft.epochs": 2,
    "sft.batch_size": 4,
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


@pytest.fixture(scope="session")
def job() -> RecipeJob:
    """The tiny run, to be started."""
    return RecipeJob("group_qc", TINY)


@pytest.fixture(scope="session")
def tiny_run(job, tmp_path_factory) -> Path:
    """The tiny run, finished; only to be read."""
    return make_once("group_qc", tmp_path_factory, lambda to: job.finish(to / "run")) / "run"


@pytest.fixture
def root(tmp_path) -> Path:
    """Real files in real folders: ten groups that pass and ten that fail."""
    return write_photos(tmp_path / "photos")
