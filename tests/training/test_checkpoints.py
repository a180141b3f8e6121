from groupwise.training.workspace import (
    find_last_checkpoint,
    mark_complete,
    read_step,
    remove_checkpoints,
)


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
