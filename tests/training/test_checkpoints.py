from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from groupwise.core import TrainingError
from groupwise.models import load_policy
from groupwise.training import SftRow, SftSettings, Workspace, checkpoints, train_sft
from groupwise.training.checkpoints import (
    find_last_checkpoint,
    find_start,
    mark_complete,
    read_step,
    remove_checkpoints,
)
from groupwise.training.fast.round import load_progress


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


def test_removing_leaves_everything_else(tmp_path):
    make(tmp_path, 1, 2)
    (tmp_path / "metrics.jsonl").touch()
    remove_checkpoints(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]


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


def test_a_checkpoint_goes_on_from_wherever_it_was_copied(tmp_path):
    make(tmp_path, 4)
    mark_complete(tmp_path / "checkpoint-4")
    (tmp_path / "copy").mkdir()
    (tmp_path / "checkpoint-4").rename(tmp_path / "copy" / "checkpoint-4")
    assert find_last_checkpoint(tmp_path / "copy") == tmp_path / "copy" / "checkpoint-4"


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
        settings = SftSettings(epochs=num_steps, batch_size=8, save_every_steps=1, warmup_share=0)
        rows = [SftRow(example, str(example.label)) for example in text_examples]
        policy, own = load_policy(text_folder), Workspace(folder, 0)
        train_sft(policy, lambda _: rows, settings, workspace=own)

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
