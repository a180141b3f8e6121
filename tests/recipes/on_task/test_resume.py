"""Killing a run in any step and running it again gives the uninterrupted run's numbers."""

from collections.abc import Callable
from pathlib import Path

import pytest
from recipe_runs import RecipeJob, is_training, read_numbers


def is_evaluating(run: Path) -> bool:
    return (run / "evaluate" / "sft.jsonl").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "is_reached",
    [is_training("sft"), is_training("grpo"), is_evaluating],
    ids=["sft", "grpo", "evaluate"],
)
def test_killed_run_ends_with_the_same_numbers(
    is_reached: Callable[[Path], bool],
    tiny_run: Path,
    tmp_path: Path,
    job: RecipeJob,
) -> None:
    run = tmp_path / "run"
    job.kill_and_resume(run, is_reached)
    assert read_numbers(run) == read_numbers(tiny_run)
