"""What a training has used: optimizer steps, samples and tokens, left in ``budget.json``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from groupwise.core import read_jsonl, write_json


def write_budget(
    folder: Path, *, num_steps: int, num_samples: int, num_tokens: int, **looks: int
) -> None:
    """Write ``budget.json`` into the folder of a training.

    Args:
        folder: of the training.
        num_steps: of the optimizer.
        num_samples: rows of supervised training, completions of GRPO.
        num_tokens: that were trained on: of the targets, or of all completions.
        looks: how often and at how many items validation was looked at, if it was.
    """
    counts = {"num_steps": num_steps, "num_samples": num_samples, "num_tokens": num_tokens}
    write_json(folder / "budget.json", counts | looks)


def write_grpo_budget(
    metrics: Path,
    resolved: Mapping[str, Any],
    *,
    num_steps: int,
    gradient_accumulation: int,
    **looks: int,
) -> None:
    """Write the budget of a GRPO training beside its ``metrics.jsonl``.

    Args:
        metrics: the file.
        resolved: values of the trainer.
        num_steps: of the optimizer.
        gradient_accumulation: micro-batches per optimizer step.
        looks: as for ``write_budget``.
    """
    rows_per_pass = resolved["generation_batch_size"] / resolved["steps_per_generation"]
    per_step = rows_per_pass * gradient_accumulation / resolved["num_iterations"]
    write_budget(
        metrics.parent,
        num_steps=num_steps,
        num_samples=round(num_steps * per_step),
        num_tokens=count_sampled_tokens(metrics, samples_per_step=per_step),
        **looks,
    )


def count_sampled_tokens(metrics: Path, *, samples_per_step: float) -> int:
    """Return the tokens of all sampled completions of a ``metrics.jsonl``.

    Each row has the mean length since the row before, ``completion_length``.
    """
    done, num_tokens = 0, 0.0
    for row in read_jsonl(metrics) if metrics.is_file() else ():
        if "completion_length" in row:
            num_tokens += (row["step"] - done) * samples_per_step * row["completion_length"]
            done = row["step"]
    return round(num_tokens)
