"""What the step ``evaluate`` leaves: the files that reports, comparisons and the gate read."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from groupwise.core import Example, digest_file, digest_json, read_json
from groupwise.evaluation.predictions import (
    Measure,
    choose_headline,
    parse_open,
)

CONDITIONS_FILE = "evaluate/conditions.json"
# Files beside weights that say how to compute with them, and what only says where they come from.
_SETTINGS = (
    *("config.json", "generation_config.json", "adapter_config.json"),
    *("preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json"),
)
_ORIGIN = (
    *("_name_or_path", "_commit_hash", "transformers_version"),
    *("base_model_name_or_path", "revision", "peft_version"),
)


class Conditions(BaseModel, extra="allow"):
    """What a run's numbers depend on beyond its manifest, written as it is evaluated.

    Digests of content decide: folders, paths and times never count. None: there is no such thing.
    """

    data: Mapping[str, Mapping[str, Any]] = {}  # by file: what ``describe_examples`` returns
    prompts: Mapping[str, str] = {}  # by split: ``digest_prompts``
    template: str | None = None  # digest of the chat template
    tokenizer: str | None = None  # digest
    base_weights: str | None = None  # ``digest_weights`` of what training starts from
    decoding: Mapping[str, Any] = {}  # how evaluated answers are drawn
    parser: Mapping[str, Any] = {}  # its settings
    normalizer: str | None = None  # version of what makes answers alike before they are compared
    metrics: Mapping[str, int] = {}  # version by family
    is_nested_subset_of: Mapping[str, str] = {}  # by split: digest of what its items are drawn from
    measures: tuple[Measure, ...] = ()  # the recipe's own


def read_conditions(folder: Path) -> dict[str, Any] | None:
    """Return the conditions of a run as they are, also of another version; None without."""
    path = folder / CONDITIONS_FILE
    return parse_open(read_json(path, dict), Conditions, path) if path.exists() else None


def read_measures(folder: Path) -> tuple[Measure, ...]:
    """Return the measures that the recipe of a run defines; none where they are not recorded."""
    return (read_conditions(folder) or {}).get("measures", ())


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


def describe_examples(examples: Sequence[Example]) -> dict[str, Any]:
    """Return digest, rows, clusters and rows by label of examples, in the order they are used.

    More than 20 labels, such as free answers, are a digest: results are no place for the data.
    """
    labels = [str(example.label) for example in examples]
    counts = sorted(Counter(labels).items())
    by_label: dict[str, Any] = {f"num_rows:{label}": count for label, count in counts}
    if len(counts) > 20:
        by_label = {"num_labels": len(counts), "labels": digest_json(labels)}
    return {
        "digest": digest_json([[example.id, example.cluster] for example in examples]),
        "num_rows": len(examples),
        "num_clusters": len({example.cluster for example in examples}),
        **by_label,
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
    rows = [[path.name, digest_file(path)] for path in files]

    def drop_origin(values: dict[str, Any]) -> dict[str, Any]:
        return {name: one for name, one in values.items() if name not in _ORIGIN}

    for path in (folder / name for name in _SETTINGS if files):
        if path.is_file():
            settings = json.loads(path.read_text(encoding="utf-8"), object_hook=drop_origin)
            rows.append([path.name, digest_json(settings)])
    return digest_json(rows) if rows else None
