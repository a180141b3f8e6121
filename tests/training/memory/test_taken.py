import mmap
import os
from types import SimpleNamespace

import torch

from groupwise.core import read_json
from groupwise.training import callbacks, log
from groupwise.training.callbacks import MetricRows
from groupwise.training.log import Memory, read_memory

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
    monkeypatch.setattr(log, "_STATUS", tmp_path / "none")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert read_memory() is None
    tell(tmp_path)
    assert not list_files(tmp_path)
