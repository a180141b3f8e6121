"""Real trackers, each writing to a folder of the test; those not installed are skipped."""

import json
import sqlite3
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from groupwise.core import Score, read_jsonl
from groupwise.models import TrainableSettings, load_policy
from groupwise.rewards import RewardSet
from groupwise.training import GrpoSettings, SftRow, SftSettings, Workspace, train_grpo, train_sft

SHOWN = ("reward/scatter", "dead_groups", "invalid", "kl", "tokens_per_s", "loss", "reward")
Values = dict[str, dict[int, float]]  # name: {step: value}


class Scatter:
    name = "scatter"

    def __call__(self, example, completion):
        return Score((sum(completion.token_ids) % 7) / 6, invalid=False)


@pytest.fixture
def train(taught_text_folder, text_examples, tmp_path, monkeypatch) -> Callable[[str], Path]:
    """SFT and then GRPO in one process, both told to one tracker; the run folder comes back."""
    run = tmp_path / "demo"
    for name in ("WANDB_PROJECT", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)

    def run_both(tracker: str) -> Path:
        trainer: dict[str, Any] = {
            "report_to": (tracker,),
            "log_every_steps": 1,
            "trainable": TrainableSettings(method="full"),
        }
        rows = [SftRow(example, "on-task") for example in text_examples[:4]]
        train_sft(
            load_policy(taught_text_folder),
            lambda _: rows,
            SftSettings(batch_size=2, **trainer),
            workspace=Workspace(run / "sft", 0),
        )
        settings = {"prompts_per_step": 4, "group_size": 2, "max_new_tokens": 4, "beta": 0.125}
        train_grpo(
            load_policy(taught_text_folder),
            text_examples,
            RewardSet({"scatter": (Scatter(), 1.0)}),
            GrpoSettings(**settings, heldout_every_steps=2, **trainer),
            workspace=Workspace(run / "grpo", 0),
            check_heldout=check_heldout,
        )
        return run

    def check_heldout() -> dict[str, float]:
        progress = json.loads((run / "grpo/progress.json").read_text())
        assert (progress["num_steps"], progress["first_step"]) == (2, 0)
        return {"accuracy": 0.5, "n": 8}

    return run_both


def check_values(found: Values, step: Path, *, shown: tuple[str, ...]) -> None:
    """Every value that a tracker was told is the one in ``metrics.jsonl``."""
    rows = [row for row in read_jsonl(step / "metrics.jsonl") if "loss" in row]
    assert len(rows) >= 2
    for name in shown:
        expected = {row["step"]: pytest.approx(row[name], rel=1e-5) for row in rows}
        assert found[name] == expected, name


def test_tensorboard_gets_our_values_and_the_resolved_arguments(train):
    pytest.importorskip("tensorboard")
    run = train("tensorboard")
    for step, shown in (("sft", ("loss", "tokens_per_s")), ("grpo", SHOWN)):
        found, texts = read_tensorboard(run / step / "runs")
        check_values(found, run / step, shown=shown)
        assert texts["args"]["run_name"] == f"demo/{step}"
        assert not [name for name in found if "frac_reward" in name or "completions/" in name]
    assert found["heldout/accuracy"] == {2: 0.5}
    assert texts["args"]["beta"] == 0.125
    assert not (run / "grpo/progress.json").exists()


def read_tensorboard(folder: Path) -> tuple[Values, dict[str, Any]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (place,) = folder.iterdir()
    events = EventAccumulator(str(place)).Reload()
    tags = events.Tags()
    scalars = {
        tag.removeprefix("train/"): {one.step: one.value for one in events.Scalars(tag)}
        for tag in tags["scalars"]
    }
    texts = {
        tag.partition("/")[0]: json.loads(events.Tensors(tag)[0].tensor_proto.string_val[0])
        for tag in tags["tensors"]
    }
    return scalars, texts


def test_wandb_offline_gets_our_values_in_a_run_for_each_training(train, tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run = train("wandb")
    assert wandb.run is None
    files = sorted(tmp_path.glob("wandb/offline-run-*/run-*.wandb"))
    records = {found["name"]: found for found in map(read_wandb, files)}
    assert set(records) == {"demo/sft", "demo/grpo"}
    check_values(records["demo/sft"]["values"], run / "sft", shown=("loss", "tokens_per_s"))
    check_values(records["demo/grpo"]["values"], run / "grpo", shown=SHOWN)
    assert records["demo/grpo"]["values"]["heldout/accuracy"] == {2: 0.5}
    assert records["demo/grpo"]["config"]["beta"] == 0.125
    assert records["demo/grpo"]["project"] == "groupwise"


def list_wandb_records(content: bytes) -> Iterator[bytes]:
    """Yield the records of a .wandb file: LevelDB's log format after seven bytes of header."""
    place, parts, block = 7, b"", 32768
    while place + 7 <= len(content):
        if block - place % block < 7:
            place += block - place % block
            continue
        length, kind = struct.unpack_from("<HB", content, place + 4)
        place += 7
        parts += content[place : place + length]
        place += length
        if kind in (1, 4):  # whole, or the last part
            yield parts
            parts = b""


def read_wandb(path: Path) -> dict[str, Any]:
    from wandb.proto import wandb_internal_pb2

    found: dict[str, Any] = {"values": {}, "config": {}}
    for data in list_wandb_records(path.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.HasField("run"):
            found |= {"name": record.run.display_name, "project": record.run.project}
        for item in record.config.update:
            found["config"][item.key or "/".join(item.nested_key)] = json.loads(item.value_json)
        row = {
            item.key or "/".join(item.nested_key): json.loads(item.value_json)
            for item in record.history.item
        }
        for name, value in row.items():
            if name.startswith("train/"):
                name = name.removeprefix("train/")
                found["values"].setdefault(name, {})[row["train/global_step"]] = value
    return found


def test_mlflow_gets_our_values_and_the_resolved_arguments(train, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.chdir(tmp_path)
    run = train("mlflow")
    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name("groupwise")
    runs = {one.info.run_name: one for one in client.search_runs([experiment.experiment_id])}
    assert set(runs) == {"demo/sft", "demo/grpo"}
    for step, shown in (("sft", ("loss", "tokens_per_s")), ("grpo", SHOWN)):
        one = runs[f"demo/{step}"]
        names = one.data.metrics
        found = {
            name: {m.step: m.value for m in client.get_metric_history(one.info.run_id, name)}
            for name in names
        }
        check_values(found, run / step, shown=shown)
        assert one.info.status == "FINISHED"
    assert found["heldout/accuracy"] == {2: 0.5}
    assert one.data.params["beta"] == "0.125"


def test_trackio_gets_our_values_and_the_resolved_arguments(train, tmp_path, monkeypatch):
    pytest.importorskip("trackio")
    import trackio.sqlite_storage
    import trackio.utils

    for module in (trackio.utils, trackio.sqlite_storage):
        monkeypatch.setattr(module, "TRACKIO_DIR", tmp_path)
    run = train("trackio")
    with sqlite3.connect(tmp_path / "groupwise.db") as store:
        metrics = store.execute("select run_name, metrics from metrics").fetchall()
        configs = dict(store.execute("select run_name, config from configs").fetchall())
    assert set(configs) == {"demo/sft", "demo/grpo"}
    for step, shown in (("sft", ("loss", "tokens_per_s")), ("grpo", SHOWN)):
        found: Values = {}
        for row in (json.loads(text) for name, text in metrics if name == f"demo/{step}"):
            for name, value in row.items():
                place = found.setdefault(name.removeprefix("train/"), {})
                place[row["train/global_step"]] = value
        check_values(found, run / step, shown=shown)
    assert found["heldout/accuracy"] == {2: 0.5}
    assert json.loads(configs["demo/grpo"])["beta"] == 0.125


def test_a_tracker_that_is_not_installed_is_one_sentence_before_training(monkeypatch):
    monkeypatch.setattr("groupwise.training.settings.find_spec", lambda name: None)
    with pytest.raises(ValidationError, match="wandb not installed; pip install wandb, or pip"):
        GrpoSettings(report_to=("wandb",))
    with pytest.raises(ValidationError, match="trackio and mlflow not installed"):
        SftSettings(report_to=("trackio", "mlflow"))
    assert SftSettings().report_to == ()


def test_a_tracker_that_nobody_knows_is_refused():
    with pytest.raises(ValidationError, match="'tensorboard', 'wandb', 'mlflow' or 'trackio'"):
        SftSettings(report_to=("tensorbord",))
