"""A training on a disk that fills up, and one whose clock jumps, is the undisturbed training."""

import os
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file
from small_disk import mount_small_disk

from groupwise.core import RunError, explain_disk, read_jsonl
from groupwise.training import callbacks, find_last_checkpoint
from groupwise.training.checkpoints import mark_complete, remove_checkpoints

TIMES = ("tokens_per_s", "step_s")


def read_outcome(folder: Path):
    """Return the weights as lists, and the rows of metrics without timings."""
    [weights] = (folder / "policy").glob("*.safetensors")
    rows = read_jsonl(folder / "metrics.jsonl")
    timeless = [{k: v for k, v in row.items() if k not in TIMES} for row in rows]
    return {name: value.tolist() for name, value in load_file(weights).items()}, timeless


@pytest.fixture(scope="module")
def whole(jobs, taught_folder, picture_examples, tmp_path_factory):
    """The undisturbed training."""
    folder = tmp_path_factory.mktemp("whole")
    jobs.run_sft(taught_folder, picture_examples, folder)
    return folder


@pytest.mark.slow
def test_a_disk_that_is_full_at_a_checkpoint(
    jobs, taught_folder, picture_examples, tmp_path, whole
):
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
                    jobs.run_sft(taught_folder, picture_examples, folder)
            assert find_last_checkpoint(folder) is not None
            read_jsonl(folder / "metrics.jsonl")
            disk.make_room()
        jobs.run_sft(taught_folder, picture_examples, folder)
        assert read_outcome(folder) == read_outcome(whole)


@pytest.mark.slow
def test_a_clock_that_goes_back_between_checkpoints(
    jobs, taught_folder, picture_examples, tmp_path, whole, monkeypatch
):
    """The first checkpoints seem to be of tomorrow: the last one is kept all the same."""
    tomorrow = time.time() + 86_400

    def mark_tomorrow(checkpoint: Path) -> None:
        mark_complete(checkpoint)
        if checkpoint.name != "checkpoint-6":
            os.utime(checkpoint, (tomorrow, tomorrow))

    monkeypatch.setattr(callbacks, "mark_complete", mark_tomorrow)
    jobs.run_sft(taught_folder, picture_examples, tmp_path)
    assert read_outcome(tmp_path) == read_outcome(whole)


def test_checkpoints_of_the_last_steps_are_kept_whatever_the_clock_said(tmp_path: Path):
    for number, step in enumerate((2, 4, 10, 6)):
        checkpoint = tmp_path / f"checkpoint-{step}"
        checkpoint.mkdir()
        os.utime(checkpoint, (10**9 - number, 10**9 - number))
    remove_checkpoints(tmp_path, num_kept=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-10", "checkpoint-6"]
    remove_checkpoints(tmp_path)
    assert list(tmp_path.iterdir()) == []
