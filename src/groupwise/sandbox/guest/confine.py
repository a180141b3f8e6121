"""What the program's process takes from itself before the program runs."""

from __future__ import annotations

import _signal  # pyright: ignore[reportMissingImports]
import ctypes
import errno
import os
import resource

TYPE_CHECKING = False  # typing takes as long to import as all the rest
if TYPE_CHECKING:
    from typing import Any

_library = ctypes.CDLL(None, use_errno=True)
_PR_SET_DUMPABLE = 4
_PR_SET_SECCOMP = 22
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_SECCOMP_MODE_FILTER = 2
_NUM_FILES = 64
_MAX_CAPABILITIES = 64
_CAPABILITY_VERSION_3 = 0x20080522


class _Filter(ctypes.Structure):
    """As ``struct sock_fprog``."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


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
        (resource.RLIMIT_CORE, 1),  # with 0 the kernel still hands a dump to a program for dumps
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_SIGPENDING, _NUM_FILES),
    ):
        resource.setrlimit(kind, (limit, limit))


def filter_calls(program: bytes) -> None:
    """Install a seccomp filter (an array of ``struct sock_filter``); nothing if it is empty.

    Raises:
        OSError: if the kernel refuses it.
    """
    if not program:
        return
    filled = _Filter(len(program) // 8, program)
    _call_prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _call_prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(filled))


def drop_capabilities() -> None:
    """Give up every capability, and that any could be had.

    Raises:
        OSError: if the kernel refuses it.
    """
    try:
        for capability in range(_MAX_CAPABILITIES):
            _call_prctl(_PR_CAPBSET_DROP, capability)
    except OSError as error:
        if error.errno != errno.EINVAL:  # the first that this kernel does not know
            raise
    header = (ctypes.c_uint * 2)(_CAPABILITY_VERSION_3, 0)
    call_system("capset", header, (ctypes.c_uint * 6)())


def _call_prctl(option: int, value: int, pointer: Any = 0) -> None:
    call_system("prctl", option, ctypes.c_ulong(value), pointer, 0, 0)


def call_system(name: str, *arguments: Any) -> None:
    """Call a function of the C library that answers 0 when all is well.

    Raises:
        OSError: if it does not.
    """
    if getattr(_library, name)(*arguments) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")


def close_files(kept: set[int]) -> None:
    """Close every descriptor but the standard ones and ``kept``."""
    start = 3
    for descriptor in [*sorted(kept), 1 << 16]:
        os.closerange(start, descriptor)
        start = descriptor + 1
