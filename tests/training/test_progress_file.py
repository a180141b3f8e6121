import json
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

from groupwise.training.callbacks import MetricRows


def make_rows(folder):
    trackers = SimpleNamespace(log=lambda *_: None)
    return MetricRows(folder / "metrics.jsonl", rename=dict, num_epochs=1, trackers=trackers)


def test_it_says_how_far_a_training_is_to_go_and_goes_with_its_end(tmp_path):
    rows = make_rows(tmp_path)
    state = SimpleNamespace(max_steps=40, global_step=25)
    rows.on_train_begin(None, state, None)
    found = json.loads((tmp_path / "progress.json").read_text())
    assert (found["num_steps"], found["first_step"]) == (40, 25)
    age = datetime.now(UTC) - datetime.fromisoformat(found["started_at"])
    assert timedelta(0) <= age < timedelta(hours=1)
    rows.on_train_end(None, state, None)
    assert list(tmp_path.iterdir()) == []


def test_only_one_process_writes_it(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    make_rows(tmp_path).on_train_begin(None, SimpleNamespace(max_steps=40, global_step=0), None)
    assert list(tmp_path.iterdir()) == []
