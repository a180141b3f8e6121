"""Digests and counts of what a run reads, for a recipe to put into its conditions.

Nothing here is compared; paths and times never enter a digest.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
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
    """Return digest, rows, clusters and rows by label of examples, in the order they are used."""
    labels = Counter(str(example.label) for example in examples)
    return {
        "digest": digest_json([[example.id, example.cluster] for example in examples]),
        "num_rows": len(examples),
        "num_clusters": len({example.cluster for example in examples}),
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
