"""Digests and counts of what a run reads and does, for a recipe to put into its conditions.

Nothing here is compared; paths and times never enter a digest.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from groupwise.core import Example, digest_file, digest_json, read_jsonl
from groupwise.evaluation.fairness.conditions import read_object

_WEIGHTS = ("*.safetensors", "*.bin")


def describe_rows(path: Path, **counts: int) -> dict[str, Any]:
    """Return digest, number of rows and ``counts`` of a JSONL file.

    Raises:
        DataError: if it cannot be read or a line is not a JSON object.
    """
    num_rows = len(read_jsonl(path))
    return {"digest": digest_file(path), "num_rows": num_rows, **counts}


def describe_examples(examples: Sequence[Example]) -> dict[str, Any]:
    """Return digest, rows, groups and rows by label of examples, in the order they are used."""
    labels = Counter(str(example.label) for example in examples)
    return {
        "digest": digest_json([[example.id, example.group] for example in examples]),
        "num_rows": len(examples),
        "num_groups": len({example.group for example in examples}),
        **{f"num_rows:{label}": labels[label] for label in sorted(labels)},
    }


def digest_prompts(examples: Iterable[Example]) -> str:
    """Return the digest of the messages of every item; the order of items does not count."""
    return digest_json(
        sorted([e.id, *(f"{turn.role}: {turn.text}" for turn in e.prompt)] for e in examples)
    )


def digest_weights(folder: Path) -> str | None:
    """Return the digest of a folder's weight files, or None if it has none.

    Configuration and tokenizer do not count; where the folder is does not either.
    """
    files = sorted(path for pattern in _WEIGHTS for path in folder.glob(pattern))
    if not files:
        return None
    return digest_json([[path.name, digest_file(path)] for path in files])


def describe_rewards(weights: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Return what counts in training: each reward's share of all weights, by its name.

    Args:
        weights: of the rewards that are there, as they were given.
    """
    total = sum(weights.values())
    return {name: {"weight": weight / total} for name, weight in weights.items()}


def count_steps(metrics: Path) -> int:
    """Return the last optimizer step of a ``metrics.jsonl``; 0 without the file."""
    return max((int(row["step"]) for row in _read_rows(metrics)), default=0)


def count_sampled_tokens(metrics: Path, *, samples_per_step: float) -> int:
    """Return the tokens of all sampled completions of a ``metrics.jsonl``.

    Each row has the mean length since the row before, ``completion_length``.
    """
    done, num_tokens = 0, 0.0
    for row in _read_rows(metrics):
        if "completion_length" in row:
            num_tokens += (row["step"] - done) * samples_per_step * row["completion_length"]
            done = row["step"]
    return round(num_tokens)


def count_grpo_budget(folder: Path, *, gradient_accumulation: int) -> dict[str, float]:
    """Return the optimizer steps, completions and completion tokens of a GRPO training.

    Args:
        folder: of the step, with ``metrics.jsonl`` and ``resolved.json``.
        gradient_accumulation: micro-batches per optimizer step.

    Raises:
        EvaluationError: if ``resolved.json`` is missing or damaged.
    """
    resolved = read_object(folder / "resolved.json")
    rows_per_pass = resolved["generation_batch_size"] / resolved["steps_per_generation"]
    per_step = rows_per_pass * gradient_accumulation / resolved["num_iterations"]
    num_steps = count_steps(folder / "metrics.jsonl")
    return {
        "num_steps": num_steps,
        "num_samples": round(num_steps * per_step),
        "num_tokens": count_sampled_tokens(folder / "metrics.jsonl", samples_per_step=per_step),
    }


def _read_rows(metrics: Path) -> Sequence[Mapping[str, Any]]:
    return read_jsonl(metrics) if metrics.is_file() else []
