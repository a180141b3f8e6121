"""Killing a run in any step and running it again gives the uninterrupted run's results."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from recipe_runs import RecipeJob, is_training, read_numbers

from groupwise.core import read_jsonl


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
