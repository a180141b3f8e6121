"""Locks that go with the process that holds them, however it ends."""

import fcntl
import os
from pathlib import Path

from groupwise.core.errors import RunError


def take_lock(path: Path, *, busy: RunError) -> int:
    """Make a lock file and hold it until the descriptor that is returned is closed.

    Raises:
        OSError: if the file cannot be made.
        RunError: ``busy``, if another process holds it.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise busy from error
    return descriptor
