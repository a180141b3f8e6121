"""How much memory this machine has, what is free for this process, what it takes and keeps."""

import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_STATUS = Path("/proc/self/status")
_MIB = 2**20
_OWN_GROUP = Path("/proc/self/cgroup")
_GROUPS = Path("/sys/fs/cgroup")
# What version 2 of control groups and version 1 call the limit, the use, and what of it is cache.
_FILES = {
    "": ("memory.max", "memory.current", "inactive_file"),
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}

# Numbers of glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")
_BYTES = 1 << 30


def read_total_memory() -> int:
    """Return the bytes this process may use: the machine's, or its control group's if less."""
    import psutil  # not for whoever only reads a config

    return min([psutil.virtual_memory().total, *(limit for limit, _ in _read_groups())])


def read_free_memory() -> int:
    """Return the bytes that are free for this process."""
    import psutil

    free = psutil.virtual_memory().available
    return min([free, *(max(0, limit - used) for limit, used in _read_groups())])


def _read_groups() -> list[tuple[int, int]]:
    """Return the limit and the use, in bytes, of each control group this process is in."""
    try:
        lines = _OWN_GROUP.read_text(encoding="ascii").splitlines()
    except OSError:
        return []
    found: list[tuple[int, int]] = []
    for kind, own in (line.split(":", 2)[1:] for line in lines):
        if kind not in _FILES:
            continue
        limit_name, used_name, cache_name = _FILES[kind]
        root = _GROUPS / kind
        # In a container the path may be that of the host, and the group mounted at the root.
        folder = root / own.lstrip("/") if (root / own.lstrip("/")).is_dir() else root
        for place in (folder, *folder.parents):
            try:
                limit = (place / limit_name).read_text(encoding="ascii").strip()
                used = int((place / used_name).read_text(encoding="ascii"))
                stat = (place / "memory.stat").read_text(encoding="ascii").split()
            except (OSError, ValueError):
                continue
            cache = dict(zip(stat[::2], stat[1::2], strict=False)).get(cache_name, "0")
            if limit.isdigit():
                found.append((int(limit), used - int(cache)))
    return found


@dataclass(frozen=True, slots=True)
class Memory:
    """Of one process, in MiB: what its tensors take on a GPU, else all that it takes."""

    device: str
    now_mib: int
    peak_mib: int
    total_mib: int


def read_memory() -> Memory | None:
    """Return what this process takes; None on a CPU whose system does not say (not Linux)."""
    import psutil
    import torch

    cuda: Any = torch.cuda
    if cuda.is_available():
        device = cuda.current_device()
        return Memory(
            f"{cuda.get_device_name(device)} (cuda:{device})",
            cuda.memory_allocated(device) // _MIB,
            cuda.max_memory_allocated(device) // _MIB,
            cuda.get_device_properties(device).total_memory // _MIB,
        )
    if not _STATUS.is_file():
        return None
    lines = _STATUS.read_text(encoding="utf-8").splitlines()
    peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    now, total = psutil.Process().memory_info().rss, psutil.virtual_memory().total
    return Memory("cpu", now // _MIB, peak // 1024, total // _MIB)


def keep_freed_memory() -> bool:
    """Let glibc keep up to 1 GiB of freed memory for the next tensors of that size.

    By itself it gives large blocks back to the system, which has to clear them again in every step.
    What the environment sets stays; other systems are left alone.

    Returns:
        Whether it does.
    """
    is_set = any(name in os.environ for name in _SETTINGS)
    if is_set or platform.libc_ver()[0] != "glibc":
        return False
    import ctypes

    library = ctypes.CDLL(None)
    return all([library.mallopt(name, _BYTES) for name in (_TRIM_THRESHOLD, _MMAP_THRESHOLD)])
