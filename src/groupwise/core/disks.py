"""What a disk refuses, in a sentence: it is full, read-only or somebody else's."""

import errno
import os
import shutil
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

from groupwise.core.errors import GroupwiseError, RunError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# What libraries say that keep the system's error to themselves.
_FULL_WORDS = (
    "No space left on device",
    "PytorchStreamWriter failed",
    "inline_container.cc",
    "os error 28",
    "No usable temporary directory",
)
_OF_DISKS = (errno.EROFS, errno.EIO)
_REFUSED = (*_OF_DISKS, errno.EACCES, errno.EPERM, errno.ENAMETOOLONG)
_REFUSED_WORDS = {f"os error {number}": os.strerror(number) for number in _REFUSED}


@contextmanager
def explain_disk(folder: Path) -> Generator[None]:
    """Within this context a disk that does not take what is written is a RunError.

    Args:
        folder: where the work is done; named where nothing says which file it was.

    Raises:
        RunError: that names the folder and what to do.
    """
    try:
        yield
    except Exception as error:
        sentence = describe_disk(error, folder)
        if sentence is None:
            raise
        raise RunError(sentence) from error


def describe_disk(error: BaseException, folder: Path) -> str | None:
    """Return what the disk refused, as a clause, or None if the error is another one."""
    for cause in _list_causes(error):
        if _is_full(cause):
            return _describe_full(cause, folder)
    if isinstance(error, GroupwiseError):
        return None  # It says itself what cannot be read or written.
    reasons = (_find_reason(cause, folder) for cause in (error, error.__cause__))
    return next((reason for reason in reasons if reason is not None), None)


def _list_causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and what led to it: libraries wrap the system's error."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _is_full(error: BaseException) -> bool:
    if isinstance(error, OSError) and error.errno in _FULL:
        return True
    return any(words in str(error) for words in _FULL_WORDS)


def _describe_full(error: BaseException, folder: Path) -> str:
    named = error.filename if isinstance(error, OSError) else None
    places = [Path(os.fsdecode(named)).parent] if named else [folder, _find_temporary()]
    place = min(places, key=_measure_free)
    free_mib = _measure_free(place) / 2**20
    return (
        f"the disk is full; free some space in {place} ({free_mib:.1f} MiB are free) "
        "and run the same command again"
    )


def _find_temporary() -> Path:
    """Return where temporary files go; asking for it by writing there fails on a full disk."""
    return Path(os.environ.get("TMPDIR", "/tmp"))


def _measure_free(folder: Path) -> int:
    known = next(
        (place for place in (folder, *folder.absolute().parents) if place.exists()), folder
    )
    return shutil.disk_usage(known).free


def _find_reason(error: BaseException | None, folder: Path) -> str | None:
    if isinstance(error, OSError):
        is_known = error.errno in _REFUSED and (error.filename or error.errno in _OF_DISKS)
        place = os.fsdecode(error.filename or folder)
        return f"cannot write to {place} ({error.strerror})" if is_known else None
    found = (reason for words, reason in _REFUSED_WORDS.items() if words in str(error))
    return next((f"cannot write to {folder} ({reason})" for reason in found), None)
