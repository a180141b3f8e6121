"""What a training has used, as its folder says."""

import json
from pathlib import Path

from groupwise.core import append_jsonl
from groupwise.training.workspace import count_sampled_tokens, write_grpo_budget


def test_sampled_tokens_are_mean_lengths_times_completions(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    for row in (
        {"step": 1, "completion_length": 10.0},
        {"step": 4, "heldout/accuracy": 0.5},
        {"step": 5, "completion_length": 2.5},
    ):
        append_jsonl(path, row)
    assert count_sampled_tokens(path, samples_per_step=8) == 1 * 8 * 10 + 4 * 8 * 2.5
    assert count_sampled_tokens(tmp_path / "gone.jsonl", samples_per_step=8) == 0


def test_grpo_is_counted_by_its_log_and_the_values_of_its_trainer(tmp_path: Path) -> None:
    resolved = {"generation_batch_size": 96, "steps_per_generation": 4, "num_iterations": 2}
    path = tmp_path / "metrics.jsonl"
    refills = {"num_refills": 3, "num_refill_tokens": 101}
    for step, length, more in ((2, 10.0, refills), (6, 5.5, {})):
        append_jsonl(path, {"step": step, "loss": 0.0, "completion_length": length, **more})
    write_grpo_budget(path, resolved, num_steps=6, gradient_accumulation=3, group_size=8)
    per_step = 96 // 4 * 3 // 2
    assert json.loads((tmp_path / "budget.json").read_text()) == {
        "num_steps": 6,
        "num_samples": 6 * per_step + 3 * 8,
        "num_tokens": per_step * (2 * 10 + 4 * 5.5) + 101,
    }
