"""Conditions: what the numbers of a run depend on beyond its manifest, written as it is evaluated.

A recipe writes one file, ``evaluate/conditions.json``; the fairness gate reads it. Digests of
content decide, so folders, paths and times never count.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from groupwise.core import (
    DataError,
    Example,
    digest_file,
    digest_json,
    read_json,
    read_jsonl,
    write_json,
)
from groupwise.evaluation.predictions import Measure, choose_headline, parse_open

CONDITIONS_FILE = "evaluate/conditions.json"
_SETTINGS = (
    *("config.json", "generation_config.json", "adapter_config.json"),
    *("preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json"),
)
# Who wrote a file, and where a model was read from.
_ORIGIN = (
    *("_name_or_path", "_commit_hash", "transformers_version"),
    *("base_model_name_or_path", "revision", "peft_version"),
)
_MOST_LABELS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What a run's numbers depend on; a digest or version is None where there is no such thing."""

    data: Mapping[str, Mapping[str, Any]]  # by file: what ``describe_examples`` returns
    prompts: Mapping[str, str]  # by split: ``digest_prompts``
    template: str | None  # digest of the chat template
    tokenizer: str | None  # digest
    base_weights: str | None  # ``digest_weights`` of what training starts from
    decoding: Mapping[str, Any]  # how evaluated answers are drawn: sampling, ``max_new_tokens``
    parser: Mapping[str, Any]  # its settings
    normalizer: str | None  # version of what makes answers alike before they are compared
    metrics: Mapping[str, int]  # version by family
    # By split: digest of the larger set that its items are drawn from.
    is_nested_subset_of: Mapping[str, str] = field(default_factory=dict[str, str])
    measures: tuple[Measure, ...] = ()  # the recipe's own


class _Recorded(BaseModel, extra="allow"):
    """The shape of recorded conditions, also of another version: keys may be missing or others."""

    data: dict[str, dict[str, Any]] = {}
    prompts: dict[str, Any] = {}
    decoding: dict[str, Any] = {}
    parser: dict[str, Any] = {}
    metrics: dict[str, Any] = {}
    measures: tuple[Measure, ...] = ()


def write_conditions(path: Path, conditions: Conditions) -> None:
    """Replace ``path`` by the conditions as a JSON object."""
    write_json(path, asdict(conditions))


def read_recorded(folder: Path) -> dict[str, Any] | None:
    """Return the conditions of a run as they are, also of another version, or None.

    Raises:
        DataError: if the file is not a JSON object.
        EvaluationError: if it has another shape.
    """
    path = folder / CONDITIONS_FILE
    return parse_open(read_json(path, dict), _Recorded, path) if path.exists() else None


def read_measures(folder: Path) -> tuple[Measure, ...]:
    """Return the measures that the recipe of a run defines; none where they are not recorded."""
    return (read_recorded(folder) or {}).get("measures", ())


def read_headline(folder: Path) -> Measure:
    """Return the measure that heads the report of a run; without metrics it is accuracy.

    Raises:
        DataError: if the metrics are damaged.
        EvaluationError: if the conditions have another shape.
    """
    path = folder / "evaluate" / "metrics.json"
    # Only names are read: a recipe of somebody else's may say less of each metric.
    found: list[dict[str, Any]] = read_json(path, list) if path.is_file() else []
    names = {str(one.get("name", "")).partition("/")[2] for one in found}
    return choose_headline(names, read_measures(folder))


def describe_rows(path: Path, **counts: int) -> dict[str, Any]:
    """Return digest, number of rows and ``counts`` of a JSONL file; errors as ``read_jsonl``."""
    num_rows = len(read_jsonl(path))
    return {"digest": digest_file(path), "num_rows": num_rows, **counts}


def describe_examples(examples: Sequence[Example]) -> dict[str, Any]:
    """Return digest, rows, clusters and rows by label of examples, in the order they are used.

    More than 20 labels, such as free answers, are a digest: results are no place for the data.
    """
    labels = [str(example.label) for example in examples]
    counts = Counter(labels)
    told: dict[str, Any] = {f"num_rows:{label}": counts[label] for label in sorted(counts)}
    if len(counts) > _MOST_LABELS:
        told = {"num_labels": len(counts), "labels": digest_json(labels)}
    return {
        "digest": digest_json([[example.id, example.cluster] for example in examples]),
        "num_rows": len(examples),
        "num_clusters": len({example.cluster for example in examples}),
        **told,
    }


def digest_prompts(examples: Iterable[Example]) -> str:
    """Return the digest of the messages of every item; the order of items does not count."""
    return digest_json(
        sorted([e.id, *(f"{turn.role}: {turn.text}" for turn in e.prompt)] for e in examples)
    )


def digest_weights(folder: Path) -> str | None:
    """Return the digest of a folder's weights and of what says how to compute with them.

    The same weights under another activation are another model; the tokenizer, the folder, the
    library that wrote it and the place of an adapter's base do not count. None without weights.
    """
    files = sorted(path for pattern in ("*.safetensors", "*.bin") for path in folder.glob(pattern))
    if not files:
        return None

    def drop_origin(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: drop_origin(one) for name, one in value.items() if name not in _ORIGIN}
        return value

    rows = [[path.name, digest_file(path)] for path in files]
    for path in (folder / name for name in _SETTINGS):
        if path.is_file():
            try:
                digest = digest_json(drop_origin(read_json(path, dict)))
            except DataError:
                digest = digest_file(path)
            rows.append([path.name, digest])
    return digest_json(rows)
