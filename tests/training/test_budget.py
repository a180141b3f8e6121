"""What a training has used, as its folder says."""

import json
from pathlib import Path

from groupwise.core import append_jsonl
from groupwise.training.checkpoints import write_grpo_budget


def test_grpo_is_counted_by_its_log_and_the_values_of_its_trainer(tmp_path: Path) -> None:
    resolved = {"generation_batch_size": 96, "steps_per_generation": 4, "num_iterations": 2}
    path = tmp_path / "metrics.jsonl"
    refills = {"num_refills": 3, "num_refill_tokens": 101}
    append_jsonl(path, {"step": 1, "heldout/accuracy": 0.5})
    for step, length, more in ((2, 10.0, refills), (6, 5.5, {})):
        append_jsonl(path, {"step": step, "loss": 0.0, "completion_length": length, **more})
    write_grpo_budget(path, resolved, num_steps=6, gradient_accumulation=3, group_size=8)
    per_step = 96 // 4 * 3 // 2
    assert json.loads((tmp_path / "budget.json").read_text()) == {
        "num_steps": 6,
        "num_samples": 6 * per_step + 3 * 8,
        "num_tokens": per_step * (2 * 10 + 4 * 5.5) + 101,
    }
