"""A training that is stopped anywhere and continued is the uninterrupted training."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

from groupwise.core import read_jsonl
from groupwise.data import write_examples
from groupwise.training import callbacks


class StoppedError(Exception):
    pass


def read_outcome(folder: Path):
    """Return the weights and the rows of metrics without timings."""
    [weights] = (folder / "policy").glob("*.safetensors")
    rows = read_jsonl(folder / "metrics.jsonl")
    timeless = [
        {k: v for k, v in row.items() if k not in ("tokens_per_s", "step_s")} for row in rows
    ]
    return load_file(weights), timeless


def assert_same(one: Path, other: Path) -> None:
    (weights, rows), (other_weights, other_rows) = read_outcome(one), read_outcome(other)
    assert weights.keys() == other_weights.keys()
    assert [name for name in weights if not weights[name].equal(other_weights[name])] == []
    assert rows == other_rows
    assert list(one.glob("checkpoint-*")) == list(other.glob("checkpoint-*")) == []


@pytest.fixture(scope="module")
def train(jobs, request):
    """Do a training in a folder."""

    def run(name, folder):
        kind, *_ = name.split()
        found = {
            "sft": jobs.run_sft,
            "grpo": jobs.run_grpo,
            "rounds": jobs.run_rounds,
            "refilled": jobs.run_refilled,
        }
        options = {"trainable": jobs.LORA} if name == "grpo lora" else {}
        asked = ("taught_folder", "picture_examples")
        if name == "grpo text":
            asked = ("taught_text_folder", "text_examples")
        found[kind](*map(request.getfixturevalue, asked), folder, **options)

    return run


@pytest.fixture(scope="module")
def whole(train, tmp_path_factory):
    """Uninterrupted trainings by name, each done once."""
    done = {}

    def find(name):
        if name not in done:
            done[name] = tmp_path_factory.mktemp("whole")
            train(name, done[name])
        return done[name]

    return find


@pytest.mark.parametrize(
    ("name", "last"),
    [
        ("grpo text", 4),
        pytest.param("sft", 6, marks=pytest.mark.slow),
        pytest.param("grpo", 4, marks=pytest.mark.slow),
        pytest.param("grpo lora", 4, marks=pytest.mark.slow),
    ],
)
def test_stopped_while_a_checkpoint_is_written(name, last, train, tmp_path, whole, monkeypatch):
    """The row of the torn checkpoint's step is there already; it is written again, not twice."""
    mark = callbacks.mark_complete

    def tear(checkpoint):
        if checkpoint.name == f"checkpoint-{last}":
            raise StoppedError
        mark(checkpoint)

    monkeypatch.setattr(callbacks, "mark_complete", tear)
    with pytest.raises(StoppedError):
        train(name, tmp_path)
    assert (tmp_path / f"checkpoint-{last}").is_dir()
    assert (tmp_path / f"checkpoint-{last - 2}" / "complete").exists()
    assert read_jsonl(tmp_path / "metrics.jsonl")[-1]["step"] == last
    monkeypatch.setattr(callbacks, "mark_complete", mark)
    train(name, tmp_path)
    assert_same(tmp_path, whole(name))


@pytest.mark.parametrize("name", ["rounds", pytest.param("refilled", marks=pytest.mark.slow)])
def test_stopped_in_a_second_pass_over_a_round(name, train, tmp_path, whole, monkeypatch):
    """As below, without the process that is killed."""
    mark = callbacks.mark_complete

    def mark_and_stop(checkpoint):
        mark(checkpoint)
        if checkpoint.name == "checkpoint-3":
            raise StoppedError

    monkeypatch.setattr(callbacks, "mark_complete", mark_and_stop)
    with pytest.raises(StoppedError):
        train(name, tmp_path)
    monkeypatch.setattr(callbacks, "mark_complete", mark)
    train(name, tmp_path)
    assert_same(tmp_path, whole(name))


@pytest.mark.slow
def test_others_are_tried_in_some_rounds_and_not_in_all(whole):
    """Or what is known of candidates could not matter above."""
    _, rows = read_outcome(whole("refilled"))
    tried = [row.get("num_refills", 0) for row in rows if "reward" in row]
    assert len(tried) == 4
    assert min(tried) == 0 < max(tried)


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("sft", 2),
        pytest.param("grpo", 2, marks=pytest.mark.slow),
        pytest.param("rounds", 3, id="in a second pass over a round", marks=pytest.mark.slow),
        pytest.param("rounds", 6, id="in a first pass over a round", marks=pytest.mark.slow),
    ],
)
def test_killed_after_a_checkpoint(
    name, step, jobs, train, taught_folder, picture_examples, tmp_path, whole
):
    write_examples(tmp_path / "examples.jsonl", picture_examples)
    folder = tmp_path / "training"
    arguments = [name, taught_folder, tmp_path / "examples.jsonl", folder, step]
    child = subprocess.run(
        [sys.executable, jobs.__file__, *map(str, arguments)],
        capture_output=True,
        check=False,
        timeout=300,
    )
    assert child.returncode == -signal.SIGKILL, child.stderr
    assert not (folder / "policy").exists()
    train(name, folder)
    assert_same(folder, whole(name))


def test_sampling_differs_between_steps(whole):
    """Otherwise the equality of random numbers above would show nothing."""
    _, rows = read_outcome(whole("grpo text"))
    lengths = [(row["reward"], row["entropy"]) for row in rows if "reward" in row]
    assert len(set(lengths)) == len(lengths) == 4


@pytest.mark.parametrize(("name", "steps"), [("sft", [2, 4, 6]), ("grpo text", [2, 4])])
def test_held_out_items_are_looked_at_in_time(name, steps, whole):
    _, rows = read_outcome(whole(name))
    looks = [(row["step"], row["heldout/n"]) for row in rows if "heldout/n" in row]
    assert looks == [(step, 2) for step in steps]


@pytest.mark.slow
def test_rounds_are_used_twice(whole):
    """Only the first update after sampling logs rewards."""
    _, rows = read_outcome(whole("rounds"))
    updates = [row for row in rows if "loss" in row]
    assert [row["step"] for row in updates if "reward" in row] == [1, 5]
    assert len(updates) == 8
