"""What becomes of memory that a step of training gives back."""

import ctypes
import os
import platform

# Numbers of glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")
_BYTES = 1 << 30


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
    library = ctypes.CDLL(None)
    return all([library.mallopt(name, _BYTES) for name in (_TRIM_THRESHOLD, _MMAP_THRESHOLD)])
