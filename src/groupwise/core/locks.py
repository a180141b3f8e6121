"""Locks that go with the process that holds them, however it ends."""

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

from groupwise.core.errors import RunError


def take_lock(path: Path, *, busy: RunError | Callable[[], object]) -> int:
    """Make a lock file and hold it until the descriptor that is returned is closed.

    Args:
        path: of the file.
        busy: what is raised if another process holds it, or called before waiting for it.

    Raises:
        OSError: if the file cannot be made.
        RunError: ``busy``, if another process holds it.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        if not _try_lock(descriptor, fcntl.LOCK_EX):
            if isinstance(busy, RunError):
                raise busy
            busy()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def is_locked(path: Path) -> bool:
    """Return whether a process holds a lock file.

    The lock is tried for an instant and shared, so several may look at once.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        return not _try_lock(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
