"""Where a control group can be made a program is in one; where not, the result says so."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sandbox_host import SHORT, needs_bubblewrap

from groupwise.sandbox import Limits, control_groups, run_python
from groupwise.sandbox.control_groups import find_place, make_group

IN_GROUP = {"group_memory", "group_processes"}


@pytest.fixture(autouse=True)
def looked_for_again() -> Iterator[None]:
    find_place.cache_clear()
    yield
    find_place.cache_clear()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that looks like a group with both controllers."""
    monkeypatch.setattr(control_groups, "find_place", lambda _: tmp_path)
    return tmp_path


@pytest.fixture
def real_place(monkeypatch: pytest.MonkeyPatch) -> Path:
    """A real group, with the controllers that it happens to have."""
    if find_place(os.getpid()) is None:
        monkeypatch.setattr(control_groups, "_CONTROLLERS", frozenset())
        monkeypatch.setattr(control_groups, "_list_limits", lambda limits: {})
        find_place.cache_clear()
    found = find_place(os.getpid())
    if found is None:
        pytest.skip("no control group of version 2 can be made here")
    return found


def list_groups(place: Path) -> list[Path]:
    return list(place.glob(f"groupwise-{os.getpid()}-*"))


def test_a_group_bounds_memory_and_processes_and_is_full_when_the_kernel_says_so(
    place: Path,
) -> None:
    group = make_group(Limits(memory_mib=100, file_mib=10, num_threads=4))
    assert group is not None
    (folder,) = list_groups(place)
    assert (folder / "memory.max").read_text() == str((2 * 100 + 10 + 64) << 20)
    assert (folder / "pids.max").read_text() == "10"
    assert not group.was_full()
    (folder / "memory.events").write_text("low 0\noom 1\noom_kill 0\n")
    assert not group.was_full()
    (folder / "memory.events").write_text("low 0\noom 1\noom_kill 2\n")
    assert group.was_full()
    group.remove()


@needs_bubblewrap
def test_what_the_kernel_ended_for_want_of_memory_was_over_its_memory(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_groups.Group, "was_full", lambda self: True)
    result = run_python("import ctypes\nctypes.CDLL(None).raise_(9)", limits=SHORT)
    assert (result.status, set(result.in_force) >= IN_GROUP) == ("memory", True)
    assert [(folder / "cgroup.procs").read_text() for folder in list_groups(place)] == ["0"]


@needs_bubblewrap
def test_program_and_checker_are_in_the_group_and_it_is_gone_with_them(real_place: Path) -> None:
    def look() -> Any:
        return [len((f / "cgroup.procs").read_text().split()) for f in list_groups(real_place)]

    result = run_python("look()", functions={"look": look}, limits=SHORT)
    assert (result.value, set(result.in_force) >= IN_GROUP) == ([2], True)
    assert run_python("while True: pass", limits=Limits(timeout_s=0.3)).status == "timeout"
    control_groups._sweep()
    assert list_groups(real_place) == []


@needs_bubblewrap
def test_without_a_group_the_result_does_not_claim_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_groups, "_list_above", lambda: iter(()))
    result = run_python("6 * 7", limits=SHORT)
    assert result.value == 42
    assert set(result.in_force) >= {"clock", "output", "processor_time", "address_space", "files"}
    assert not set(result.in_force) & IN_GROUP


@needs_bubblewrap
def test_a_group_that_cannot_be_entered_is_not_claimed(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = control_groups.Group.__init__

    def open_for_reading(self: Any, folder: Path) -> None:
        real(self, folder)
        os.close(self.entry)
        self.entry = os.open(folder / "cgroup.procs", os.O_RDONLY | os.O_CLOEXEC)

    monkeypatch.setattr(control_groups.Group, "__init__", open_for_reading)
    result = run_python("6 * 7", limits=SHORT)
    assert (result.value, set(result.in_force) & IN_GROUP) == (42, set())


def test_only_a_group_whose_children_have_both_controllers_is_a_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    monkeypatch.setattr(control_groups, "_list_above", lambda: iter((inner, tmp_path)))
    monkeypatch.setattr(control_groups.Path, "rmdir", lambda self: None)
    (inner / "cgroup.subtree_control").write_text("memory\n")
    (tmp_path / "cgroup.subtree_control").write_text("cpu memory pids\n")
    assert find_place(os.getpid()) == tmp_path
    assert not (inner / f"groupwise-{os.getpid()}-trial").exists()
