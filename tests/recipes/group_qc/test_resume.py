"""Killing a run in any step and running it again gives the uninterrupted run's results."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from recipe_runs import RecipeJob, is_training, read_numbers

from groupwise.core import read_jsonl

NUM_GROUPS = 200
NUM_KILLS = 10
NUM_STEPS = 11
"""All but the report."""

MAX_SECONDS = 4.0


def read_stage_a(run: Path) -> dict[str, list[dict[str, Any]]]:
    return {
        path.name: [{**row, "timestamp": ""} for row in read_jsonl(path)]
        for path in sorted((run / "summarize").glob("*_stage_a.jsonl"))
    }


def is_describing(run: Path) -> bool:
    return sum(path.stat().st_size > 0 for path in run.glob("stage_a/*/*_stage_a.jsonl")) >= 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "is_reached",
    [is_training("teach_stage_a"), is_describing, is_training("sft"), is_training("grpo")],
    ids=["teach_stage_a", "summarize", "sft", "grpo"],
)
def test_killed_run_ends_with_the_same_results(
    is_reached: Callable[[Path], bool],
    tiny_run: Path,
    tmp_path: Path,
    job: RecipeJob,
) -> None:
    run = tmp_path / "run"
    job.kill_and_resume(run, is_reached)
    assert read_stage_a(run) == read_stage_a(tiny_run)
    assert read_numbers(run) == read_numbers(tiny_run)


@pytest.mark.slow
def test_killed_at_ten_random_moments_no_group_is_lost_or_there_twice(
    tmp_path: Path, job: RecipeJob
) -> None:
    larger = RecipeJob(job.recipe, {**job.settings, "data.drawn.num_groups": NUM_GROUPS})
    whole = larger.finish(tmp_path / "whole")
    run = tmp_path / "run"
    rng = random.Random(0)
    numbers = sorted(rng.choices(range(1, NUM_STEPS + 1), k=NUM_KILLS))
    killed = [larger.kill_in(run, number, rng.uniform(0.0, MAX_SECONDS)) for number in numbers]
    assert {"teach_stage_a", "summarize", "grpo"} <= set(killed), killed
    larger.finish(run)
    assert read_stage_a(run) == read_stage_a(whole)
    splits = {g["group_id"]: g["split"] for g in read_jsonl(run / "prepare" / "groups.jsonl")}
    assert len(splits) == NUM_GROUPS
    described = [row["group_id"] for rows in read_stage_a(run).values() for row in rows]
    assert sorted(described) == sorted(name for name, of in splits.items() if of != "teach")
    assert read_answers(run) == read_answers(whole)
    assert read_numbers(run) == read_numbers(whole)
    weights = Path("grpo", "policy", "adapter_model.safetensors")
    assert (run / weights).read_bytes() == (whole / weights).read_bytes()


def read_answers(run: Path) -> list[dict[str, Any]]:
    """Return all predictions but for what depends on the clock and the folder."""
    rows = read_jsonl(run / "evaluate" / "predictions.jsonl")
    return [{**row, "latency_s": None, "pictures": []} for row in rows]
