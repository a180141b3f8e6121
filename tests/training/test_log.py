"""Rows, memory and facts of a training, and trackers that are told of them."""

import importlib
import json
import mmap
import os
import sqlite3
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from training_job import reinforce, teach

from groupwise.core import (
    Completion,
    Fact,
    RewardError,
    Score,
    TrainingError,
    memory,
    read_json,
    read_jsonl,
)
from groupwise.core.memory import Memory, read_memory
from groupwise.rewards import FactCounts, RewardSet
from groupwise.training import callbacks
from groupwise.training.callbacks import MetricRows
from groupwise.training.grpo import RewardFunction
from groupwise.training.log import TrainingLog
from groupwise.training.settings import GrpoSettings, SftSettings


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(perf_counter=lambda: clock.now, now=100.0)
    monkeypatch.setattr("groupwise.training.log.time", clock)
    return clock


def test_steps_are_timed_from_the_beginning_and_redone_rows_are_dropped(tmp_path, clock):
    log = TrainingLog(tmp_path / "metrics.jsonl")
    clock.now = 104.0
    row = log.write(2, {"loss": 1.5, "grad_norm": float("inf")}, epoch=0.123456)
    assert row == {"step": 2, "epoch": 0.1235, "loss": 1.5, "step_s": 2.0}
    log.write(4, {"loss": 1.0}, epoch=1)
    again = TrainingLog(log.path)
    again.start(2)
    clock.now = 107.0
    again.write(3, {"loss": 0.5}, epoch=1)
    assert read_jsonl(log.path) == [row, {"step": 3, "epoch": 1, "loss": 0.5, "step_s": 3.0}]


def test_a_loss_that_is_no_number_stops(tmp_path):
    log = TrainingLog(tmp_path / "metrics.jsonl")
    with pytest.raises(TrainingError, match="broke down at step 1; got loss not a number"):
        log.write(1, {"loss": float("nan"), "kl": 0.0}, epoch=1)
    assert not log.path.exists()


def make_rows(folder, tell_tracker=lambda *_: None, **named):
    trackers = SimpleNamespace(log=tell_tracker)
    path = folder / "metrics.jsonl"
    return MetricRows(path, rename=dict, num_epochs=1, trackers=trackers, **named)


def test_a_row_has_the_mean_time_of_its_steps_also_after_a_checkpoint(tmp_path, clock) -> None:
    rows = make_rows(tmp_path)

    def log(step: int, now: float) -> None:
        clock.now = now
        rows.on_log(None, SimpleNamespace(global_step=step, max_steps=30), None, {"loss": 1.0})

    rows.on_train_begin(None, SimpleNamespace(global_step=20, max_steps=30), None)
    log(24, 102.0)
    log(25, 105.0)
    assert [row["step_s"] for row in read_jsonl(tmp_path / "metrics.jsonl")] == [0.5, 3.0]


def test_trackers_are_told_values_and_no_counts(tmp_path: Path) -> None:
    told: list[dict[str, float]] = []
    facts = {"reward/executed": 0.5, "facts": {"num": 2}}
    rows = make_rows(tmp_path, lambda values, *_: told.append(values), tell=lambda: facts)
    rows.on_log(None, SimpleNamespace(global_step=1, max_steps=2), None, {"loss": 1.0})
    [row] = read_jsonl(tmp_path / "metrics.jsonl")
    assert row["facts"] == {"num": 2}
    assert [{**told[0], "step": 1, "facts": {"num": 2}}] == [row]
    assert "facts" not in told[0]


STATE = SimpleNamespace(global_step=7, max_steps=9)


def tell(folder, logs=None):
    logs = {"loss": 1.0} if logs is None else logs
    make_rows(folder).on_log(None, STATE, None, logs=logs)


def list_files(folder):
    return [path.name for path in folder.iterdir() if path.name != "metrics.jsonl"]


def test_what_a_process_takes_rises_with_what_it_holds():
    before = read_memory()
    with mmap.mmap(-1, 160 * 2**20) as held:  # pages that nobody had before
        for _ in range(160):
            held.write(b"1" * 2**20)
        now = read_memory()
    assert 140 <= now.now_mib - before.now_mib <= 200
    assert now.peak_mib >= now.now_mib - 1
    assert now.total_mib == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20
    assert now.device == "cpu"


def test_a_gpu_tells_of_its_tensors(monkeypatch):
    told = {
        "is_available": True,
        "current_device": 1,
        "get_device_name": "H100",
        "memory_allocated": 3 * 2**20,
        "max_memory_allocated": 5 * 2**20,
        "get_device_properties": SimpleNamespace(total_memory=80 * 2**30),
    }
    for name, value in told.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, value=value: value)
    assert read_memory() == Memory("H100 (cuda:1)", 3, 5, 81920)


def test_each_row_tells_it_of_every_process(tmp_path, monkeypatch):
    other = Memory("cpu", 1, 2, 3)
    monkeypatch.setattr(callbacks, "read_memory", lambda: Memory("cpu", 4, 5, 6))
    tell(tmp_path, {"heldout/accuracy": 1.0})
    assert not list_files(tmp_path)
    tell(tmp_path)
    own = {"device": "cpu", "now_mib": 4, "peak_mib": 5, "total_mib": 6}
    assert read_json(tmp_path / "memory.json", dict) == {"step": 7, "processes": [own]}
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(callbacks, "gather_object", lambda found: [*found, other])
    tell(tmp_path)
    found = read_json(tmp_path / "memory.json", dict)["processes"]
    assert [one["now_mib"] for one in found] == [4, 1]
    (tmp_path / "memory.json").unlink()
    monkeypatch.setenv("RANK", "1")  # only the first process writes
    tell(tmp_path)
    assert not list_files(tmp_path)


def test_a_system_that_does_not_say_leaves_no_file(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "_STATUS", tmp_path / "none")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert read_memory() is None
    tell(tmp_path)
    assert not list_files(tmp_path)


NAMES = {
    "is": st.booleans(),
    "number": st.floats(0, 1000),
    "word": st.sampled_from("abc"),
    "word/x": st.sampled_from("abc"),
    "word/y": st.sampled_from("abc"),
}
TOLD = st.lists(st.fixed_dictionaries({}, optional=NAMES), max_size=30)


def count(*facts: Mapping[str, Fact]) -> FactCounts:
    found = FactCounts()
    found.add(facts)
    return found


def test_shares_have_counts_numbers_have_means_and_texts_are_tallied() -> None:
    assert FactCounts().tabulate() == count({}, {}).tabulate() == {}
    rows = [
        {"executed": True, "correct": True, "tokens": 10, "program/math": "one"},
        {"executed": True, "correct": False, "tokens": 20, "program/math": "one"},
        {"executed": False, "correct": False, "program/code": "two", "failed": "error"},
        {"no value": "connection"},
    ]
    assert count(*rows).tabulate() == {
        "reward/executed": pytest.approx(2 / 3),
        "reward/correct": pytest.approx(1 / 3),
        "reward/commonest_program/math": 1.0,
        "reward/commonest_program/code": 1.0,
        "mean/tokens": 15.0,
        "reward/collapsed": 0.0,
        "facts": {
            "num": 4,
            "shares": {
                "executed": [2, 3],
                "correct": [1, 3],
                "commonest_program/code": [1, 1],
                "commonest_program/math": [2, 2],
            },
            "sums": {"tokens": [30, 2]},
            "texts": {
                "failed": {"num": 1, "different": 1, "commonest": [["error", 1]]},
                "no value": {"num": 1, "different": 1, "commonest": [["connection", 1]]},
                "program/code": {"num": 1, "different": 1, "commonest": [["two", 1]]},
                "program/math": {"num": 2, "different": 1, "commonest": [["one", 2]]},
            },
        },
    }


@pytest.mark.parametrize(
    ("programs", "collapsed"),
    [
        ({"math": "aab", "code": "a"}, 1.0),
        ({"math": "aab", "code": "b"}, 0.0),
        ({"math": "abb", "code": "b", "qa": "a"}, 0.0),
        ({"math": "aaa"}, None),
    ],
)
def test_one_text_that_is_the_commonest_of_all_kinds_is_a_collapse(
    programs: Mapping[str, str], collapsed: float | None
) -> None:
    facts = [{f"program/{kind}": text} for kind, texts in programs.items() for text in texts]
    assert count(*facts).tabulate().get("reward/collapsed") == collapsed


@given(TOLD)
def test_counts_add_up(facts: list[Mapping[str, Fact]]) -> None:
    row = count(*facts).tabulate()
    if not any(facts):
        assert row == {}
        return
    told = row["facts"]
    assert told["num"] == len(facts)
    for name, (part, num) in told["shares"].items():
        assert 0 <= part <= num <= len(facts)
        assert row[f"reward/{name}"] == part / num
    for name, one in told["texts"].items():
        assert one["num"] == sum(name in each for each in facts)
        assert one["num"] == sum(number for _, number in one["commonest"])
        assert one["different"] == len(one["commonest"])
    assert told["shares"].get("is", [0, 0])[1] == sum("is" in each for each in facts)


@given(TOLD, TOLD)
def test_processes_that_count_apart_count_what_one_would(
    mine: list[Mapping[str, Fact]], others: list[Mapping[str, Fact]]
) -> None:
    joined = count(*mine)
    joined.merge(count(*others))
    whole = count(*mine, *others)
    assert (joined.num, joined.shares, joined.texts) == (whole.num, whole.shares, whole.texts)
    assert joined.sums == whole.sums


class Teller:
    """Tells what a text says."""

    kind = "other"

    def __init__(self, name: str, **facts: Fact) -> None:
        self.name = name
        self.facts = facts

    def __call__(self, example: object, completion: Completion) -> Score:
        return Score(None if completion.text == "none" else 1.0, facts=self.facts)


def test_what_all_parts_tell_is_told_also_where_there_is_no_value(text_examples) -> None:
    both = RewardSet({"a": (Teller("a", x=True), 1.0), "b": (Teller("b", y="z"), 0.0)})
    for text in ("some", "none"):
        assert both.score(text_examples[0], Completion(text)).facts == {"x": True, "y": "z"}
    for name in ("x", "a"):  # one name is one fact
        twice = {"a": (Teller("a", x=True), 1.0), "b": (Teller("b", **{name: 1.0}), 0.0)}
        with pytest.raises(RewardError, match=f"got {name}"):
            RewardSet(twice).score(text_examples[0], Completion("some"))


def test_facts_of_a_row_are_those_since_the_row_before(text_examples) -> None:
    function = RewardFunction(
        text_examples, RewardSet({"a": (Teller("a", x=True), 1.0)}), end_token_ids=[7]
    )

    def score(texts: Sequence[str]) -> None:
        function(
            completions=[[{"role": "assistant", "content": text}] for text in texts],
            completion_ids=[[7]] * len(texts),
            place=[0] * len(texts),
            log_metric=lambda *_: None,
        )

    score(["some", "none"])
    score(["some"])
    assert function.tell_facts()["facts"]["shares"] == {"x": [3, 3]}
    assert function.tell_facts() == {}
    score(["some"])
    assert function.tell_facts()["facts"]["num"] == 1


SHOWN = ("reward/scatter", "dead_groups", "invalid", "kl", "tokens_per_s", "loss", "reward")
ENVIRONMENT = {
    "WANDB_MODE": "offline",
    "WANDB_BASE_URL": "http://127.0.0.1:9",
    "WANDB_ERROR_REPORTING": "false",
    "WANDB_SILENT": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
Values = dict[str, dict[int, float]]  # name: {step: value}
Told = dict[str, tuple[Values, Any]]  # run: its values, and the beta among its arguments


@pytest.fixture
def train(taught_text_folder, text_examples, tmp_path, monkeypatch) -> Callable[[str], Path]:
    """SFT and then GRPO in one process, both told to one tracker; the run folder comes back."""
    run = tmp_path / "demo"
    for name in ("WANDB_PROJECT", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    own = {"WANDB_DIR": str(tmp_path), "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path / 'mlflow.db'}"}
    for name, value in (ENVIRONMENT | own).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)

    def run_both(tracker: str) -> Path:
        told: dict[str, Any] = {"report_to": (tracker,), "log_every_steps": 1}
        teach(taught_text_folder, text_examples[:4], run / "sft", batch_size=2, **told)
        settings = {"beta": 0.125, "heldout_every_steps": 2, "look": check_heldout, **told}
        reinforce(taught_text_folder, text_examples, run / "grpo", **settings)
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


@pytest.mark.parametrize("tracker", ["tensorboard", "wandb", "mlflow", "trackio"])
def test_a_tracker_gets_our_values_and_the_resolved_arguments(
    tracker, train, tmp_path, monkeypatch
):
    pytest.importorskip(tracker)
    if tracker == "trackio":
        for module in ("trackio.utils", "trackio.sqlite_storage"):
            monkeypatch.setattr(importlib.import_module(module), "TRACKIO_DIR", tmp_path)
    run = train(tracker)
    assert not (run / "grpo/progress.json").exists()
    found = READERS[tracker](tmp_path)
    assert set(found) == {"demo/sft", "demo/grpo"}
    for step, shown in (("sft", ("loss", "tokens_per_s")), ("grpo", SHOWN)):
        values, beta = found[f"demo/{step}"]
        check_values(values, run / step, shown=shown)
        assert not [name for name in values if "frac_reward" in name or "completions/" in name]
    assert values["heldout/accuracy"] == {2: 0.5}
    assert float(beta) == 0.125


def read_tensorboard(folder: Path) -> Told:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found: Told = {}
    for place in folder.glob("demo/*/runs/*"):
        events = EventAccumulator(str(place)).Reload()
        tags = events.Tags()
        values = {
            tag.removeprefix("train/"): {one.step: one.value for one in events.Scalars(tag)}
            for tag in tags["scalars"]
        }
        texts = {
            tag.partition("/")[0]: json.loads(events.Tensors(tag)[0].tensor_proto.string_val[0])
            for tag in tags["tensors"]
        }
        found[texts["args"]["run_name"]] = values, texts["args"].get("beta")
    return found


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


def read_wandb(folder: Path) -> Told:
    import wandb
    from wandb.proto import wandb_internal_pb2

    assert wandb.run is None
    found: Told = {}
    for path in folder.glob("wandb/offline-run-*/run-*.wandb"):
        values, config, told = {}, {}, {}
        for data in list_wandb_records(path.read_bytes()):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            if record.HasField("run"):
                told = {"name": record.run.display_name, "project": record.run.project}
            config |= read_items(record.config.update)
            row = read_items(record.history.item)
            add_row(values, {n: value for n, value in row.items() if n.startswith("train/")})
        assert told["project"] == "groupwise"
        found[told["name"]] = values, config.get("beta")
    return found


def read_items(items: Any) -> dict[str, Any]:
    return {one.key or "/".join(one.nested_key): json.loads(one.value_json) for one in items}


def add_row(values: Values, row: Mapping[str, Any]) -> None:
    for name, value in row.items():
        values.setdefault(name.removeprefix("train/"), {})[row["train/global_step"]] = value


def read_mlflow(folder: Path) -> Told:
    import mlflow

    client, found = mlflow.MlflowClient(), {}
    experiment = client.get_experiment_by_name("groupwise")
    for one in client.search_runs([experiment.experiment_id]):
        values = {
            name: {m.step: m.value for m in client.get_metric_history(one.info.run_id, name)}
            for name in one.data.metrics
        }
        assert one.info.status == "FINISHED"
        found[one.info.run_name] = values, one.data.params.get("beta")
    return found


def read_trackio(folder: Path) -> Told:
    with sqlite3.connect(folder / "groupwise.db") as store:
        metrics = store.execute("select run_name, metrics from metrics").fetchall()
        configs = store.execute("select run_name, config from configs").fetchall()
    found: Told = {name: ({}, json.loads(config).get("beta")) for name, config in configs}
    for name, text in metrics:
        add_row(found[name][0], json.loads(text))
    return found


READERS = {
    "tensorboard": read_tensorboard,
    "wandb": read_wandb,
    "mlflow": read_mlflow,
    "trackio": read_trackio,
}


def test_a_tracker_that_is_not_installed_is_one_sentence_before_training(monkeypatch):
    monkeypatch.setattr("groupwise.training.settings.find_spec", lambda name: None)
    with pytest.raises(ValidationError, match="wandb not installed; pip install wandb, or pip"):
        GrpoSettings(report_to=("wandb",))
    with pytest.raises(ValidationError, match="trackio and mlflow not installed"):
        SftSettings(report_to=("trackio", "mlflow"))
    assert SftSettings().report_to == ()
    with pytest.raises(ValidationError, match="'tensorboard', 'wandb', 'mlflow' or 'trackio'"):
        SftSettings(report_to=("tensorbord",))
