"""Conditions: what the numbers of a run depend on beyond its manifest, written as it is evaluated.

A recipe writes one file, ``evaluate/conditions.json``; ``facts`` reads it. Digests of content
decide, so folders, paths and times never count.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError

from groupwise.core import (
    EvaluationError,
    Example,
    digest_file,
    digest_json,
    read_json,
    read_jsonl,
    write_json,
)
from groupwise.evaluation.measures import Measure

CONDITIONS_FILE = "evaluate/conditions.json"
_NESTED = ("data",)
_MAPPINGS = (*_NESTED, "prompts", "decoding", "parser", "metrics")
_AGAIN = "run the step that writes it again"
_MEASURES = TypeAdapter(tuple[Measure, ...])
_WEIGHTS = ("*.safetensors", "*.bin")


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What a run's numbers depend on; a digest or version is None where there is no such thing.

    Attributes:
        data: by file: ``digest``, ``num_rows`` and further counts (``describe_examples``).
        prompts: by split: digest of the messages of every item (``digest_prompts``).
        template: digest of the chat template.
        tokenizer: digest of the tokenizer.
        base_weights: digest of the weights that training starts from (``digest_weights``).
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


def write_conditions(path: Path, conditions: Conditions) -> None:
    """Replace ``path`` by the conditions as a JSON object."""
    write_json(path, asdict(conditions))


def read_conditions(path: Path) -> Conditions:
    """Return the conditions of a file.

    Raises:
        EvaluationError: if the file is missing, is no JSON object or has other keys.
    """
    values = read_json(path, dict)
    known = {item.name for item in fields(Conditions)}
    if set(values) != known:
        raise EvaluationError(
            f"{path} does not hold conditions that this version can read",
            got=f"the keys {sorted(set(values) ^ known)} too many or too few",
            fix="run the step evaluate again",
        )
    _check_shape(values, path)
    values["measures"] = parse_measures(values, path)
    return Conditions(**values)


def read_recorded(folder: Path) -> dict[str, Any] | None:
    """Return the conditions of a run as they are, also those of another version, or None.

    Raises:
        EvaluationError: if the file is damaged.
    """
    path = folder / CONDITIONS_FILE
    values = read_if_there(path)
    if values is not None:
        _check_shape(values, path)
    return values


def read_measures(folder: Path) -> tuple[Measure, ...]:
    """Return the measures that the recipe of a run defines; none where they are not recorded.

    Raises:
        EvaluationError: if the file is damaged.
    """
    return parse_measures(read_recorded(folder) or {}, folder / CONDITIONS_FILE)


def parse_measures(values: Mapping[str, Any], path: Path) -> tuple[Measure, ...]:
    """Return the measures in recorded conditions.

    Raises:
        EvaluationError: if they are something else.
    """
    try:
        return _MEASURES.validate_python(values.get("measures", ()))
    except ValidationError as error:
        got = f"measures {values['measures']!r}"
        raise EvaluationError(f"{path} is damaged", got=got, fix=_AGAIN) from error


def _check_shape(values: Mapping[str, Any], path: Path) -> None:
    for name in _MAPPINGS:
        value: object = values.get(name, {})
        is_whole = isinstance(value, dict)
        if is_whole and name in _NESTED:
            inner = cast("dict[str, object]", value).values()
            is_whole = all(isinstance(item, dict) for item in inner)
        if not is_whole:
            raise EvaluationError(f"{path} is damaged", got=f"{name} {value!r}", fix=_AGAIN)
    parse_measures(values, path)


def read_if_there(path: Path) -> dict[str, Any] | None:
    """Return a JSON object of a run folder, or None without the file.

    Raises:
        DataError: if it is damaged.
    """
    return read_json(path, dict) if path.exists() else None


def read_rows(path: Path) -> list[Mapping[str, Any]]:
    """Return a JSON list of objects of a run folder.

    Raises:
        DataError: if the file cannot be read or is no list.
        EvaluationError: if something else than objects is in it.
    """
    rows = read_json(path, list)
    if not all(isinstance(row, dict) for row in rows):
        raise EvaluationError(f"{path} is damaged", expected="a JSON list of objects", fix=_AGAIN)
    return rows


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
