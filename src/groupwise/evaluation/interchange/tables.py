"""Per-item rows as Parquet and CSV, and Parquet read back.

Parquet keeps types. A mapping becomes a list of named pairs and ``fields`` JSON text: a struct
would give every item the keys of all others. ``is_correct`` is added for readers.
"""

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

from groupwise import __version__
from groupwise.core import EvaluationError, write_text
from groupwise.core.jsonl import replace_file
from groupwise.evaluation.interchange.source import RunRecords
from groupwise.evaluation.predictions import Prediction

pa: Any = import_module("pyarrow")  # it ships without types
pq: Any = import_module("pyarrow.parquet")
METADATA_KEY = "groupwise"
FORMAT_VERSION = 1
_ADDED = "is_correct"


def _pairs(name: str) -> Any:
    return pa.list_(pa.struct([("name", pa.string()), (name, pa.float64())]))


SCHEMA: Any = pa.schema(
    [
        pa.field("example_id", pa.string(), nullable=False),
        pa.field("cluster", pa.string(), nullable=False),
        pa.field("split", pa.string(), nullable=False),
        pa.field("policy", pa.string(), nullable=False),
        pa.field("label", pa.string(), nullable=False),
        pa.field("predicted", pa.string()),
        pa.field(_ADDED, pa.bool_(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
        pa.field("probabilities", _pairs("probability")),
        pa.field("latency_s", pa.float64()),
        pa.field("pictures", pa.list_(pa.string()), nullable=False),
        pa.field("fields", pa.string(), nullable=False),
        pa.field("scores", _pairs("score"), nullable=False),
        pa.field("samples", pa.list_(pa.bool_()), nullable=False),
        pa.field("pair", pa.string(), nullable=False),
    ]
)


def describe_records(records: RunRecords) -> dict[str, Any]:
    """Return what a reader must know to compare rows with those of another run."""
    manifest = records.manifest
    return {
        "format_version": FORMAT_VERSION,
        "groupwise": __version__,
        "run": records.name,
        "recipe": manifest.get("recipe"),
        "config_digest": manifest.get("config_digest"),
        "started_at": manifest.get("started_at"),
        "split_digests": records.digest_splits(),
        "metric_versions": dict(records.metric_versions),
    }


def write_parquet(path: Path, records: RunRecords) -> None:
    """Replace ``path`` by one row per prediction, with ``describe_records`` as metadata."""
    described = json.dumps(describe_records(records), ensure_ascii=False)
    schema = SCHEMA.with_metadata({METADATA_KEY: described})
    rows = [_to_row(item) for item in records.predictions]
    table = pa.Table.from_pylist(rows, schema=schema)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    replace_file(path, [sink.getvalue()])


def read_parquet(path: Path) -> tuple[list[Prediction], Mapping[str, Any]]:
    """Return the predictions of a file that ``write_parquet`` wrote, and its description.

    Raises:
        EvaluationError: if it is no Parquet file or was written by something else.
    """
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise EvaluationError(f"cannot read {path} as Parquet ({error})") from error
    metadata: Mapping[bytes, bytes] = table.schema.metadata or {}
    if METADATA_KEY.encode() not in metadata:
        raise EvaluationError(f"{path} is not an export of predictions")
    described: dict[str, Any] = json.loads(metadata[METADATA_KEY.encode()])
    if described["format_version"] != FORMAT_VERSION:
        raise EvaluationError(
            f"{path} has another format",
            got=described["format_version"],
            expected=FORMAT_VERSION,
            fix="export the run again",
        )
    return [_from_row(row) for row in table.to_pylist()], described


def write_csv(path: Path, records: RunRecords) -> None:
    """Replace ``path`` by one line per prediction; what is nested is JSON text, None is empty."""
    stream = io.StringIO(newline="")
    writer = csv.DictWriter(stream, SCHEMA.names, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writeheader()
    for item in records.predictions:
        row = {**asdict(item), _ADDED: item.is_correct}
        writer.writerow({name: _to_cell(row[name]) for name in SCHEMA.names})
    write_text(path, stream.getvalue())


def _to_cell(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    is_nested = isinstance(value, dict | tuple)
    return _to_json(value) if is_nested else value  # pyright: ignore[reportUnknownArgumentType]


def _to_row(item: Prediction) -> dict[str, Any]:
    probabilities = item.probabilities
    return {
        **asdict(item),
        _ADDED: item.is_correct,
        "probabilities": None
        if probabilities is None
        else _list_pairs(probabilities, "probability"),
        "fields": _to_json(item.fields),
        "scores": _list_pairs(item.scores, "score"),
    }


def _from_row(row: Mapping[str, Any]) -> Prediction:
    pairs = row["probabilities"]
    values: dict[str, Any] = {
        **row,
        "probabilities": None if pairs is None else _join_pairs(pairs, "probability"),
        "fields": json.loads(row["fields"]),
        "scores": _join_pairs(row["scores"], "score"),
        "pictures": tuple(row["pictures"]),
        "samples": tuple(row["samples"]),
    }
    del values[_ADDED]
    return Prediction(**values)


def _list_pairs(values: Mapping[str, float], name: str) -> list[dict[str, Any]]:
    return [{"name": key, name: value} for key, value in values.items()]


def _join_pairs(pairs: Iterable[Mapping[str, Any]], name: str) -> dict[str, float]:
    return {pair["name"]: pair[name] for pair in pairs}


def _to_json(value: Mapping[str, Any] | Sequence[Any]) -> str:
    return json.dumps(value, ensure_ascii=False)
