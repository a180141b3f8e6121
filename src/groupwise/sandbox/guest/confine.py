"""What the program's process takes from itself before the program runs."""

from __future__ import annotations

import _signal  # pyright: ignore[reportMissingImports]
import os
import resource

TYPE_CHECKING = False  # typing takes as long to import as all the rest
if TYPE_CHECKING:
    from typing import Any

_PR_SET_DUMPABLE = 4
_PR_SET_SECCOMP = 22
_PR_SET_NO_NEW_PRIVS = 38
_SECCOMP_MODE_FILTER = 2
_NUM_FILES = 64


def hide_memory() -> None:
    """Let no other process of the sandbox read or write this one's memory.

    Interrupts from other processes are ignored too.
    """
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    _call_prctl(_PR_SET_DUMPABLE, 0)


def limit_resources(limits: dict[str, Any]) -> None:
    """Set this process's limits, so low that it cannot raise them again."""
    seconds = int(limits["cpu_s"])
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    for kind, limit in (
        (resource.RLIMIT_AS, limits["memory_bytes"]),
        (resource.RLIMIT_FSIZE, limits["file_bytes"]),
        (resource.RLIMIT_NPROC, limits["num_threads"]),
        (resource.RLIMIT_NOFILE, _NUM_FILES),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
    ):
        resource.setrlimit(kind, (limit, limit))


def filter_calls(program: bytes) -> None:
    """Install a seccomp filter (an array of ``struct sock_filter``); nothing if it is empty.

    Raises:
        OSError: if the kernel refuses it.
    """
    if not program:
        return
    import ctypes

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))

    filled = Program(len(program) // 8, program)
    _call_prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _call_prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(filled))


def _call_prctl(option: int, value: int, pointer: Any = 0) -> None:
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(option, ctypes.c_ulong(value), pointer, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"prctl {option}: {os.strerror(error)}")


def close_files(kept: set[int]) -> None:
    """Close every descriptor but the standard ones and ``kept``."""
    start = 3
    for descriptor in [*sorted(kept), 1 << 16]:
        os.closerange(start, descriptor)
        start = descriptor + 1
