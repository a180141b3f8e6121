"""Digests and counts of what a run reads and does, for a recipe to put into its conditions.

Nothing here is compared; paths and times never enter a digest.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from groupwise.core import Example, digest_file, digest_json, read_jsonl

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


def _read_rows(metrics: Path) -> Sequence[Mapping[str, Any]]:
    return read_jsonl(metrics) if metrics.is_file() else []
