import json
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

from groupwise.training.callbacks import ProgressFile


def test_it_says_how_far_a_training_is_to_go_and_goes_with_its_end(tmp_path):
    progress = ProgressFile(tmp_path)
    state = SimpleNamespace(is_world_process_zero=True, max_steps=40, global_step=25)
    progress.on_train_begin(None, state, None)
    found = json.loads((tmp_path / "progress.json").read_text())
    assert (found["num_steps"], found["first_step"]) == (40, 25)
    age = datetime.now(UTC) - datetime.fromisoformat(found["started_at"])
    assert timedelta(0) <= age < timedelta(hours=1)
    progress.on_train_end(None, state, None)
    assert list(tmp_path.iterdir()) == []


def test_only_one_process_writes_it(tmp_path):
    state = SimpleNamespace(is_world_process_zero=False, max_steps=40, global_step=0)
    ProgressFile(tmp_path).on_train_begin(None, state, None)
    assert list(tmp_path.iterdir()) == []
