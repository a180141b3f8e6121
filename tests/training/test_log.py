"""Rows, memory and facts of a training, and trackers that are told of them."""

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
from training_job import Scatter

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
from groupwise.models.policy import load_policy
from groupwise.models.trainable import TrainableSettings
from groupwise.rewards import FactCounts, RewardSet
from groupwise.training import callbacks
from groupwise.training.callbacks import MetricRows
from groupwise.training.checkpoints import Workspace
from groupwise.training.grpo import RewardFunction, train_grpo
from groupwise.training.log import TrainingLog, begin_progress, end_progress
from groupwise.training.settings import GrpoSettings, SftRow, SftSettings
from groupwise.training.sft import train_sft


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


def test_progress_is_there_while_it_trains(tmp_path):
    begin_progress(tmp_path, num_steps=9, first_step=3)
    progress = json.loads((tmp_path / "progress.json").read_text())
    assert (progress["num_steps"], progress["first_step"]) == (9, 3)
    end_progress(tmp_path)
    end_progress(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_row_has_the_mean_time_of_its_steps_also_after_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(perf_counter=lambda: clock.now, now=100.0)
    monkeypatch.setattr("groupwise.training.log.time", clock)
    path = tmp_path / "metrics.jsonl"
    trackers = SimpleNamespace(log=lambda *_: None)
    rows = MetricRows(path, rename=dict, num_epochs=1, trackers=trackers)  # pyright: ignore[reportArgumentType]

    def log(step: int, now: float) -> None:
        clock.now = now
        rows.on_log(None, SimpleNamespace(global_step=step, max_steps=30), None, {"loss": 1.0})

    rows.on_train_begin(None, SimpleNamespace(global_step=20, max_steps=30), None)
    log(24, 102.0)
    log(25, 105.0)
    assert [row["step_s"] for row in read_jsonl(path)] == [0.5, 3.0]


def test_trackers_are_told_values_and_no_counts(tmp_path: Path) -> None:
    told: list[dict[str, float]] = []
    trackers = SimpleNamespace(log=lambda values, *_: told.append(values))
    rows = MetricRows(
        tmp_path / "metrics.jsonl",
        rename=dict,
        num_epochs=1,
        trackers=trackers,  # pyright: ignore[reportArgumentType]
        tell=lambda: {"reward/executed": 0.5, "facts": {"num": 2}},
    )
    rows.on_log(None, SimpleNamespace(global_step=1, max_steps=2), None, {"loss": 1.0})
    [row] = read_jsonl(tmp_path / "metrics.jsonl")
    assert row["facts"] == {"num": 2}
    assert [{**told[0], "step": 1, "facts": {"num": 2}}] == [row]
    assert "facts" not in told[0]


STATE = SimpleNamespace(global_step=7, max_steps=9)


def tell(folder, logs=None):
    trackers = SimpleNamespace(log=lambda *_: None)
    rows = MetricRows(folder / "metrics.jsonl", rename=dict, num_epochs=1, trackers=trackers)
    rows.on_log(None, STATE, None, logs={"loss": 1.0} if logs is None else logs)


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


def test_only_the_first_process_writes(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr(callbacks, "gather_object", lambda found: found * 2)
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


def test_nothing_told_is_nothing_logged() -> None:
    assert FactCounts().tabulate() == count({}, {}).tabulate() == {}


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


@pytest.mark.parametrize("name", ["x", "a"])
def test_one_name_is_one_fact(text_examples, name: str) -> None:
    both = RewardSet({"a": (Teller("a", x=True), 1.0), "b": (Teller("b", **{name: 1.0}), 0.0)})
    with pytest.raises(RewardError, match=f"got {name}"):
        both.score(text_examples[0], Completion("some"))


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
Values = dict[str, dict[int, float]]  # name: {step: value}


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
            RewardSet({"scatter": (Scatter(7), 1.0)}),
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
