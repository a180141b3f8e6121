"""What a training leaves: checkpoints that it goes on from exactly, its budget, its rollouts."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import training_job
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from small_disk import mount_small_disk

from groupwise.core import (
    Completion,
    Message,
    RunError,
    Score,
    TrainingError,
    append_jsonl,
    explain_disk,
    make_example,
    read_jsonl,
)
from groupwise.data.examples import write_examples
from groupwise.training import callbacks, checkpoints
from groupwise.training.checkpoints import (
    RolloutLog,
    find_last_checkpoint,
    find_start,
    mark_complete,
    read_step,
    remove_checkpoints,
    write_grpo_budget,
)
from groupwise.training.fast.round import load_progress
from groupwise.training.settings import GrpoSettings


def make(folder, *steps):
    for step in steps:
        (folder / f"checkpoint-{step}").mkdir()
        (folder / f"checkpoint-{step}" / "weights").touch()


def test_the_newest_whole_checkpoint_is_found_and_torn_ones_go(tmp_path):
    make(tmp_path, 8, 9, 10, 100)
    for step in (8, 9, 10):
        mark_complete(tmp_path / f"checkpoint-{step}")
    found = find_last_checkpoint(tmp_path)
    assert found == tmp_path / "checkpoint-10"
    assert read_step(found) == 10
    assert not (tmp_path / "checkpoint-100").exists()
    assert (tmp_path / "checkpoint-8" / "weights").exists()
    # It goes on from wherever it was copied.
    (tmp_path / "copy").mkdir()
    (tmp_path / "checkpoint-9").rename(tmp_path / "copy" / "checkpoint-9")
    assert find_last_checkpoint(tmp_path / "copy") == tmp_path / "copy" / "checkpoint-9"


def test_other_processes_go_on_from_what_the_first_has_found(tmp_path, monkeypatch):
    """Another machine may not see yet that a checkpoint is whole, and must not remove it."""
    make(tmp_path, 3)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr(checkpoints, "ask_first", lambda find: tmp_path / "checkpoint-3")
    assert find_start(tmp_path) == tmp_path / "checkpoint-3"
    assert (tmp_path / "checkpoint-3").exists()


def test_without_a_whole_one_there_is_none(tmp_path):
    assert find_last_checkpoint(tmp_path / "missing") is None
    make(tmp_path, 3)
    assert find_last_checkpoint(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("path", "text", "told"),
    [("weights", "x", "weights"), ("more.pt", "x", "more.pt"), ("complete", "{", "complete")],
)
def test_a_checkpoint_that_was_changed_is_not_continued(tmp_path, path, text, told):
    make(tmp_path, 4)
    mark_complete(tmp_path / "checkpoint-4")
    (tmp_path / "checkpoint-4" / path).write_text(text)
    with pytest.raises(TrainingError, match=f"what its training wrote; got another {told};"):
        find_last_checkpoint(tmp_path)


class _Trap:
    def __reduce__(self):
        return Path.touch, (Path("sprung"),)


@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt", "rng_state.pth"])
def test_a_checkpoint_with_code_in_it_ends_in_a_sentence(
    name, text_folder, text_examples, tmp_path, monkeypatch
):
    """Sealed anew by whoever put it there; nothing of it runs."""
    monkeypatch.chdir(tmp_path)

    def train(folder, num_steps):
        settings = {"epochs": num_steps, "batch_size": 8, "save_every_steps": 1}
        training_job.teach(text_folder, text_examples, folder, **settings)

    monkeypatch.setattr("groupwise.training.sft.remove_checkpoints", lambda _: None)
    train(tmp_path / "sft", 1)
    checkpoint = tmp_path / "sft" / "checkpoint-1"
    assert (checkpoint / name).is_file()
    torch.save({"a": _Trap()}, checkpoint / name)
    mark_complete(checkpoint)
    with pytest.raises(TrainingError, match="else than tensors and plain values, or is damaged"):
        train(tmp_path / "sft", 2)
    assert not Path("sprung").exists()


def test_no_code_of_a_progress_file_runs(tmp_path, monkeypatch):
    """Its weights_only says so itself, whatever PyTorch does by default."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    place = SimpleNamespace(process_index=0, device=torch.device("cpu"))
    trainer = SimpleNamespace(accelerator=place)
    torch.save({"step": _Trap()}, tmp_path / "grpo_progress_0.pt")
    with pytest.raises(TrainingError, match="holds something else than tensors and plain values"):
        load_progress(trainer, tmp_path)
    assert not Path("sprung").exists()


def test_grpo_is_counted_by_its_log_and_the_values_of_its_trainer(tmp_path: Path) -> None:
    resolved = {"generation_batch_size": 96, "steps_per_generation": 4, "num_iterations": 2}
    path = tmp_path / "metrics.jsonl"
    refills = {"num_refills": 3, "num_refill_tokens": 101}
    append_jsonl(path, {"step": 1, "heldout/accuracy": 0.5})
    for step, length, more in ((2, 10.0, refills), (6, 5.5, {})):
        append_jsonl(path, {"step": step, "loss": 0.0, "completion_length": length, **more})
    settings = GrpoSettings(gradient_accumulation=3, group_size=8)
    write_grpo_budget(path, resolved, settings, num_steps=6, looks={})
    per_step = 96 // 4 * 3 // 2
    assert json.loads((tmp_path / "budget.json").read_text()) == {
        "num_steps": 6,
        "num_samples": 6 * per_step + 3 * 8,
        "num_tokens": per_step * (2 * 10 + 4 * 5.5) + 101,
    }


EXAMPLE = make_example([Message("user", "is it?")], cluster="g")
VALUES = st.none() | st.floats(0, 1)
SCORES = st.builds(
    Score, VALUES, st.text(), st.dictionaries(st.text(), VALUES), invalid=st.booleans()
)
COMPLETIONS = st.builds(
    Completion,
    st.text(st.characters(exclude_categories=["Cs"])),
    st.lists(st.integers(0, 9)).map(tuple),
    finish_reason=st.sampled_from(["stop", "length"]),
)


@given(st.lists(st.tuples(COMPLETIONS, SCORES), min_size=1, max_size=3))
def test_what_is_written_is_read(tmp_path_factory, pairs):
    path = tmp_path_factory.mktemp("log") / "rollouts.jsonl"
    completions, scores = zip(*pairs, strict=True)
    RolloutLog(path).write(3, [EXAMPLE] * len(pairs), completions, scores)
    [row] = read_jsonl(path)
    said = [
        (
            Completion(one["text"], tuple(one["token_ids"]), finish_reason=one["finish_reason"]),
            Score(one["value"], one["reason"], one["breakdown"], invalid=one["invalid"]),
        )
        for one in row["rollouts"]
    ]
    assert said == pairs
    assert (row["step"], {one["example"] for one in row["rollouts"]}) == (3, {EXAMPLE.id})


def test_steps_that_are_done_again_are_dropped(tmp_path):
    log = RolloutLog(tmp_path / "rollouts.jsonl")
    for step in range(4):
        log.write(step, [EXAMPLE], [Completion("a", (step,), finish_reason="stop")], [Score(1.0)])
    log.start(2)
    assert [row["step"] for row in read_jsonl(log.path)] == [0, 1]
    log.start(0)
    assert not read_jsonl(log.path)


@pytest.mark.slow
def test_a_disk_that_is_full_at_a_checkpoint(taught_folder, picture_examples, tmp_path, whole):
    with mount_small_disk(tmp_path / "disk", size_kib=2**18) as disk:
        folder = disk.folder / "training"
        mark = callbacks.mark_complete
        for leave_kib in (0, 2000):

            def fill_after_the_first(checkpoint: Path, leave_kib: int = leave_kib) -> None:
                mark(checkpoint)
                if not (disk.folder / "filler").exists():
                    disk.fill(leave_kib=leave_kib)

            with pytest.MonkeyPatch.context() as filled:
                filled.setattr(callbacks, "mark_complete", fill_after_the_first)
                with (
                    pytest.raises(RunError, match=f"free some space in {folder}"),
                    explain_disk(folder),
                ):
                    training_job.run_sft(taught_folder, picture_examples, folder)
            assert find_last_checkpoint(folder) is not None
            read_jsonl(folder / "metrics.jsonl")
            disk.make_room()
        training_job.run_sft(taught_folder, picture_examples, folder)
        assert_same(folder, whole("sft"))


@pytest.mark.slow
def test_a_clock_that_goes_back_between_checkpoints(
    taught_folder, picture_examples, tmp_path, whole, monkeypatch
):
    """The first checkpoints seem to be of tomorrow: the last one is kept all the same."""
    tomorrow = time.time() + 86_400

    def mark_tomorrow(checkpoint: Path) -> None:
        mark_complete(checkpoint)
        if checkpoint.name != "checkpoint-6":
            os.utime(checkpoint, (tomorrow, tomorrow))

    monkeypatch.setattr(callbacks, "mark_complete", mark_tomorrow)
    training_job.run_sft(taught_folder, picture_examples, tmp_path)
    assert_same(tmp_path, whole("sft"))


def test_checkpoints_of_the_last_steps_are_kept_whatever_the_clock_said(tmp_path: Path):
    (tmp_path / "metrics.jsonl").touch()
    for number, step in enumerate((2, 4, 10, 6)):
        checkpoint = tmp_path / f"checkpoint-{step}"
        checkpoint.mkdir()
        os.utime(checkpoint, (10**9 - number, 10**9 - number))
    remove_checkpoints(tmp_path, num_kept=2)
    kept = ["checkpoint-10", "checkpoint-6", "metrics.jsonl"]
    assert sorted(path.name for path in tmp_path.iterdir()) == kept
    remove_checkpoints(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]


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
def train(request):
    """Do a training in a folder."""

    def run(name, folder):
        kind, *_ = name.split()
        found = {
            "sft": training_job.run_sft,
            "grpo": training_job.run_grpo,
            "rounds": training_job.run_rounds,
            "refilled": training_job.run_refilled,
        }
        options = {"trainable": training_job.LORA} if name == "grpo lora" else {}
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
    """Or the equality of refilled rounds above would show nothing."""
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
    name, step, train, taught_folder, picture_examples, tmp_path, whole
):
    write_examples(tmp_path / "examples.jsonl", picture_examples)
    folder = tmp_path / "training"
    arguments = [name, taught_folder, tmp_path / "examples.jsonl", folder, step]
    child = subprocess.run(
        [sys.executable, training_job.__file__, *map(str, arguments)],
        capture_output=True,
        check=False,
        timeout=300,
    )
    assert child.returncode == -signal.SIGKILL, child.stderr
    assert not (folder / "policy").exists()
    train(name, folder)
    assert_same(folder, whole(name))


@pytest.mark.parametrize(("name", "steps"), [("sft", [2, 4, 6]), ("grpo text", [2, 4])])
def test_held_out_items_are_looked_at_in_time(name, steps, whole):
    _, rows = read_outcome(whole(name))
    looks = [(row["step"], row["heldout/n"]) for row in rows if "heldout/n" in row]
    assert looks == [(step, 2) for step in steps]
    if name == "grpo text":
        # Sampling differs between steps, or the equality of random numbers would show nothing.
        sampled = [(row["reward"], row["entropy"]) for row in rows if "reward" in row]
        assert len(set(sampled)) == len(sampled) == 4


@pytest.mark.slow
def test_rounds_are_used_twice(whole):
    """Only the first update after sampling logs rewards."""
    _, rows = read_outcome(whole("rounds"))
    updates = [row for row in rows if "loss" in row]
    assert [row["step"] for row in updates if "reward" in row] == [1, 5]
    assert len(updates) == 8
