"""Locks: one holder, who waits is told first, and nothing is left held by a failure."""

import os
import threading
from pathlib import Path

import pytest

from groupwise.core import RunError, is_locked, take_lock


def test_a_second_holder_is_refused_and_leaves_nothing_open(tmp_path: Path):
    path = tmp_path / "lock"
    assert not is_locked(path)
    first = take_lock(path, busy=RunError("taken"))
    assert is_locked(path)
    num_open = len(os.listdir("/proc/self/fd"))
    with pytest.raises(RunError, match="taken"):
        take_lock(path, busy=RunError("taken"))
    assert len(os.listdir("/proc/self/fd")) == num_open
    os.close(first)
    assert not is_locked(path)


def test_who_waits_is_told_and_then_holds_it(tmp_path: Path):
    path, told = tmp_path / "lock", threading.Event()
    first = take_lock(path, busy=RunError("taken"))
    held: list[int] = []
    waiter = threading.Thread(target=lambda: held.append(take_lock(path, busy=told.set)))
    waiter.start()
    assert told.wait(30)
    assert held == []
    os.close(first)
    waiter.join(30)
    assert is_locked(path)
    os.close(held[0])
    assert not is_locked(path)
