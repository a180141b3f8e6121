"""Rows of metrics say how long a step took."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from groupwise.core import read_jsonl
from groupwise.training.callbacks import MetricRows


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
