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
    """What a run's numbers depend on; a digest or version is None where there is no such thing.

    Attributes:
        data: by file: ``digest``, ``num_rows`` and further counts (``describe_examples``).
        prompts: by split: digest of the messages of every item (``digest_prompts``).
        template: digest of the chat template.
        tokenizer: digest of the tokenizer.
        base_weights: digest of the weights that training starts from and of the settings beside
            them (``digest_weights``).
        decoding: how the evaluated answers are drawn: sampling parameters, ``max_new_tokens``.
        parser: settings of the parser that reads answers.
        normalizer: version of what makes answers alike before they are compared.
        metrics: version by metric family.
        is_nested_subset_of: by split: digest of the larger set that its items are drawn from.
        measures: what the recipe's own scores are called, and whether more of each is better.
    """

    data: Mapping[str, Mapping[str, Any]]
    prompts: Mapping[str, str]
    template: str | None
    tokenizer: str | None
    base_weights: str | None
    decoding: Mapping[str, Any]
    parser: Mapping[str, Any]
    normalizer: str | None
    metrics: Mapping[str, int]
    is_nested_subset_of: Mapping[str, str] = field(default_factory=dict[str, str])
    measures: tuple[Measure, ...] = ()


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
    """Return the conditions of a run as they are, also those of another version, or None.

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

    Of the metrics only the names are read: a recipe of somebody else's may say less of each.

    Raises:
        DataError: if the metrics are damaged.
        EvaluationError: if the conditions have another shape.
    """
    path = folder / "evaluate" / "metrics.json"
    found: list[dict[str, Any]] = read_json(path, list) if path.is_file() else []
    names = {str(one.get("name", "")).partition("/")[2] for one in found}
    return choose_headline(names, read_measures(folder))


def describe_rows(path: Path, **counts: int) -> dict[str, Any]:
    """Return digest, number of rows and ``counts`` of a JSONL file.

    Raises:
        DataError: if it cannot be read or a line is not a JSON object.
    """
    num_rows = len(read_jsonl(path))
    return {"digest": digest_file(path), "num_rows": num_rows, **counts}


def describe_examples(examples: Sequence[Example]) -> dict[str, Any]:
    """Return digest, rows, clusters and rows by label of examples, in the order they are used.

    Labels of which there are many, such as free answers and references, are a digest: a file of
    results is no place for the data.
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

    That are its weight files and the configurations of model, generation, pictures and adapter:
    the same weights under another activation are another model. The tokenizer does not count, nor
    where the folder is, which library wrote it, or the place of an adapter's base. None for a
    folder without weight files.
    """
    files = sorted(path for pattern in ("*.safetensors", "*.bin") for path in folder.glob(pattern))
    if not files:
        return None
    settings = [path for name in _SETTINGS if (path := folder / name).is_file()]
    return digest_json(
        [
            *([path.name, digest_file(path)] for path in files),
            *([path.name, _digest_settings(path)] for path in settings),
        ]
    )


def _digest_settings(path: Path) -> str:
    def drop_origin(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: drop_origin(one) for name, one in value.items() if name not in _ORIGIN}
        return value

    try:
        return digest_json(drop_origin(read_json(path, dict)))
    except DataError:
        return digest_file(path)
