"""A control group for each program, where this process may make one.

In it the kernel counts all memory, also what it keeps itself for a program, and all processes.
Only version 2, and only below a group that has given both controllers to its children already:
nothing of the machine is changed but a group that is made and removed again.
"""

import atexit
import itertools
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from groupwise.sandbox.result import Limits

_CONTROLLERS = frozenset(("memory", "pids"))
_SPARE_MIB = 64  # for what the kernel keeps
_numbers = itertools.count()
_left: list[Path] = []


class Group:
    """The control group of one program.

    Args:
        folder: where it is.

    Attributes:
        entry: descriptor; who writes 0 there is in the group.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.entry = os.open(folder / "cgroup.procs", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC)

    def was_full(self) -> bool:
        """Say whether the kernel ended something in it for want of memory."""
        try:
            events = (self._folder / "memory.events").read_text()
        except OSError:
            return False
        return re.search(r"^oom_kill [1-9]", events, re.M) is not None

    def remove(self) -> None:
        """Remove it; what ends at this moment is in the way, so perhaps later."""
        os.close(self.entry)
        _left.append(self._folder)
        _sweep()


def make_group(limits: Limits) -> Group | None:
    """Return a group for one program and its checker; None where there can be none."""
    place = find_place(os.getpid())
    if place is None:
        return None
    _sweep()
    folder = place / f"groupwise-{os.getpid()}-{next(_numbers)}"
    try:
        folder.mkdir()
        for name, value in _list_limits(limits).items():
            (folder / name).write_text(value)
        return Group(folder)
    except OSError:  # too many groups, for now
        _left.append(folder)
        return None


def _list_limits(limits: Limits) -> dict[str, str]:
    memory_mib = 2 * limits.memory_mib + limits.file_mib + _SPARE_MIB
    return {
        "memory.max": str(memory_mib << 20),
        "pids.max": str(2 * limits.num_threads + 2),
    }


@lru_cache(maxsize=1)
def find_place(process: int) -> Path | None:
    """Return the nearest group in which this process can make others; None if there is none."""
    return next((folder for folder in _list_above() if _is_usable(folder)), None)


def _list_above() -> Iterator[Path]:
    """Give the group of this process and those above it."""
    try:
        mounts = Path("/proc/self/mounts").read_text()
        groups = Path("/proc/self/cgroup").read_text()
    except OSError:
        return
    mount = re.search(r"^\S+ (\S+) cgroup2 ", mounts, re.M)
    own = re.search(r"^0::/(.*)$", groups, re.M)
    if mount and own and ".." not in own.group(1):
        root = Path(mount.group(1))
        folder = root / own.group(1)
        yield from (above for above in (folder, *folder.parents) if above.is_relative_to(root))


def _is_usable(folder: Path) -> bool:
    """Say whether another process can be moved into a new group there; by trying."""
    trial = folder / f"groupwise-{os.getpid()}-trial"
    try:
        given = set((folder / "cgroup.subtree_control").read_text().split())
        if not given >= _CONTROLLERS:
            return False
        trial.mkdir()
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as helper:
            (trial / "cgroup.procs").write_text(str(helper.pid))
        return True
    except OSError:
        return False
    finally:
        with suppress(OSError):
            trial.rmdir()


def _sweep() -> None:
    for folder in list(_left):
        with suppress(OSError):
            folder.rmdir()
        if not folder.exists():
            _left.remove(folder)


atexit.register(_sweep)
