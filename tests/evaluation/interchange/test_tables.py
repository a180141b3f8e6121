import csv
import json
import math
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.core import DataError, EvaluationError, write_json
from groupwise.evaluation import Prediction, digest_items, write_predictions
from groupwise.evaluation.interchange import (
    RunRecords,
    read_parquet,
    read_records,
    write_csv,
    write_parquet,
)

TEXT = st.text(max_size=12) | st.sampled_from(["在任务上", "", 'a "b", c\n', "\u2028", "🙂", "\0"])
SHARE = st.floats(min_value=0, max_value=1)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | SHARE | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


@st.composite
def shares(draw) -> dict[str, float] | None:
    """None, or shares of up to four labels that add up to 1."""
    names = draw(st.none() | st.lists(TEXT, min_size=1, max_size=4, unique=True))
    if names is None:
        return None
    parts = [draw(st.floats(min_value=0.01, max_value=1)) for _ in names]
    total = math.fsum(parts)
    return {name: part / total for name, part in zip(names, parts, strict=True)}


@st.composite
def predictions(draw) -> list[Prediction]:
    found = []
    for place in range(draw(st.integers(min_value=1, max_value=5))):
        predicted = draw(st.none() | TEXT)
        found.append(
            Prediction(
                example_id=f"{place}{draw(TEXT)}",
                cluster=draw(TEXT),
                split="test",
                policy="grpo",
                label=draw(TEXT),
                predicted=predicted,
                reason="" if predicted is not None else "no label",
                text=draw(TEXT),
                probabilities=draw(shares()),
                latency_s=draw(st.none() | st.floats(min_value=0, max_value=1e6)),
                pictures=tuple(draw(st.lists(TEXT, max_size=2))),
                fields=draw(st.dictionaries(TEXT, JSON_VALUES, max_size=3)),
                scores=draw(st.dictionaries(TEXT.map("s".__add__), SHARE, max_size=3)),
                samples=tuple(draw(st.lists(st.booleans(), max_size=4))),
                pair=draw(TEXT),
            )
        )
    return found


def make_records(items: list[Prediction]) -> RunRecords:
    conditions = {"metrics": {"accuracy": 1, "brier": 2}}
    manifest = {"recipe": "on_task", "config_digest": "c0ffee", "started_at": "2026-01-02"}
    return RunRecords("demo", tuple(items), (), manifest, conditions, {})


@given(items=predictions())
@settings(max_examples=60, deadline=None)
def test_parquet_gives_back_what_was_written(
    items: list[Prediction], tmp_path_factory: pytest.TempPathFactory
):
    path = tmp_path_factory.mktemp("parquet") / "rows.parquet"
    write_parquet(path, make_records(items))
    found, _ = read_parquet(path)
    assert found == items


def make_item(**named) -> Prediction:
    values = {"example_id": "i", "cluster": "g", "split": "test", "policy": "grpo"}
    return Prediction(**{**values, "label": "on-task", "predicted": "on-task", **named})


def test_parquet_has_types_and_says_what_its_rows_are(tmp_path: Path):
    items = [make_item(latency_s=0.5), make_item(example_id="j", predicted=None, reason="none")]
    path = tmp_path / "deep" / "rows.parquet"
    write_parquet(path, make_records(items))
    table = pq.read_table(path)
    assert str(table.schema.field("latency_s").type) == "double"
    assert table.column("is_correct").to_pylist() == [True, False]
    assert table.column("predicted").to_pylist() == ["on-task", None]
    assert pq.ParquetFile(path).metadata.row_group(0).column(0).compression == "ZSTD"
    described = json.loads(table.schema.metadata[b"groupwise"])
    assert described["split_digests"] == {"test": {"grpo": digest_items(items)}}
    assert described["metric_versions"] == {"accuracy": 1, "brier": 2}
    assert (described["run"], described["recipe"]) == ("demo", "on_task")
    assert read_parquet(path)[1] == described
    assert [file.name for file in path.parent.iterdir()] == ["rows.parquet"]


def test_other_tools_read_it(tmp_path: Path):
    """The datasets library refuses a map, so mappings are lists of named pairs."""
    import datasets
    import pandas as pd

    path = tmp_path / "rows.parquet"
    shares = {"on-task": 0.75, "off-task": 0.25}
    write_parquet(path, make_records([make_item(probabilities=shares, fields={"task": "写预算"})]))
    (row,) = datasets.Dataset.from_parquet(str(path), cache_dir=str(tmp_path / "cache"))
    assert row["probabilities"] == [
        {"name": "on-task", "probability": 0.75},
        {"name": "off-task", "probability": 0.25},
    ]
    assert json.loads(row["fields"]) == {"task": "写预算"}
    assert pd.read_parquet(path)["label"].tolist() == ["on-task"]


def test_what_is_no_export_is_refused(tmp_path: Path):
    (tmp_path / "text.parquet").write_text("no parquet")
    with pytest.raises(EvaluationError, match=r"cannot read .*text.parquet as Parquet"):
        read_parquet(tmp_path / "text.parquet")
    path = tmp_path / "rows.parquet"
    write_parquet(path, make_records([make_item()]))
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({}), path)
    with pytest.raises(EvaluationError, match="is not an export of predictions"):
        read_parquet(path)
    pq.write_table(table.replace_schema_metadata({"groupwise": '{"format_version": 99}'}), path)
    with pytest.raises(EvaluationError, match="has another format; got 99; expected 1"):
        read_parquet(path)


@given(items=predictions())
@settings(max_examples=30, deadline=None)
def test_csv_keeps_every_text(items: list[Prediction], tmp_path_factory: pytest.TempPathFactory):
    path = tmp_path_factory.mktemp("csv") / "rows.csv"
    write_csv(path, make_records(items))
    with path.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    for row, item in zip(rows, items, strict=True):
        assert row["text"] == item.text
        assert row["predicted"] == (item.predicted or "")
        assert row["is_correct"] == ("true" if item.is_correct else "false")
        assert json.loads(row["fields"]) == item.fields
        assert json.loads(row["samples"]) == list(item.samples)
        known = None if row["probabilities"] == "" else json.loads(row["probabilities"])
        assert known == item.probabilities


def test_records_of_a_run_and_of_one_policy(full_run: Path):
    records = read_records(full_run)
    assert records.policies[0] == "majority"
    assert records.policies[-1] == "grpo"
    assert len(records.predictions) == 7 * 320
    one = read_records(full_run, policy="sft")
    assert {item.policy for item in one.predictions} == {"sft"}
    assert {metric.policy for metric in one.metrics} == {"sft"}
    assert records.metric_versions == {}
    with pytest.raises(EvaluationError, match="has no policy 'sfd'; got majority, text_only"):
        read_records(full_run, policy="sfd")


def test_a_run_without_predictions_has_nothing_to_export(tmp_path: Path):
    with pytest.raises(EvaluationError, match=r"nothing to export; got no evaluate/pred"):
        read_records(tmp_path)
    write_predictions(tmp_path / "evaluate/predictions.jsonl", [make_item()])
    assert read_records(tmp_path).metrics == ()
    write_json(tmp_path / "manifest.json", [1])
    with pytest.raises(DataError, match=r"manifest.json is torn"):
        read_records(tmp_path)
