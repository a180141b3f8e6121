"""The log of any training loop."""

import json
from types import SimpleNamespace

import pytest

from groupwise.core import TrainingError, read_jsonl
from groupwise.training import TrainingLog, begin_progress, end_progress


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
