"""Which errors are the disk's, and what is told of them."""

import errno
import os
from pathlib import Path

import pytest

from groupwise.core import DataError, RunError, append_jsonl, explain_disk


def chain(cause: BaseException) -> RuntimeError:
    error = RuntimeError("a library gave up")
    error.__cause__ = cause
    return error


def make_error(number: int, name: str | None = None) -> OSError:
    return OSError(number, os.strerror(number), *([name] if name else []))


def tell(error: BaseException, folder: Path) -> str:
    with pytest.raises(RunError) as caught, explain_disk(folder):
        raise error
    assert caught.value.__cause__ is error
    return str(caught.value)


@pytest.mark.parametrize(
    "error",
    [
        make_error(errno.ENOSPC),
        make_error(errno.EDQUOT),
        make_error(errno.EFBIG),
        chain(make_error(errno.ENOSPC)),
        RuntimeError("Error while serializing: I/O error: No space left (os error 28)"),
        RuntimeError("[enforce fail at inline_container.cc:664] . unexpected pos 64 vs 0"),
        FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']"),
    ],
)
def test_a_full_disk_is_told_with_its_folder_and_what_to_do(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    message = tell(error, tmp_path / "not" / "made")
    assert message.startswith("the disk is full; free some space in /")
    assert str(tmp_path) in message
    assert message.endswith(" MiB are free) and run the same command again.")


def test_the_file_that_was_written_says_which_disk(tmp_path: Path):
    other = tmp_path / "other"
    message = tell(make_error(errno.ENOSPC, str(other / "file")), tmp_path / "run")
    assert f"free some space in {other} (" in message


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (make_error(errno.EROFS), "cannot write to {run} (Read-only file system)."),
        (make_error(errno.EROFS, "/x"), "cannot write to /x (Read-only file system)."),
        (make_error(errno.EACCES, "/x"), "cannot write to /x (Permission denied)."),
        (make_error(errno.EIO), "cannot write to {run} (Input/output error)."),
        (chain(make_error(errno.EROFS)), "cannot write to {run} (Read-only file system)."),
        (RuntimeError("I/O error (os error 30)"), "cannot write to {run} (Read-only file system)."),
    ],
)
def test_a_disk_that_takes_nothing_is_told(error: BaseException, words: str, tmp_path: Path):
    assert tell(error, tmp_path) == words.format(run=tmp_path)


@pytest.mark.parametrize(
    "error",
    [
        make_error(errno.ENOENT, "/x"),
        make_error(errno.EPERM),
        chain(make_error(errno.EPERM)),
        ValueError("a bug"),
        DataError("cannot read x (Permission denied)"),
        KeyboardInterrupt(),
    ],
)
def test_other_errors_stay_what_they_are(error: BaseException, tmp_path: Path):
    with pytest.raises(type(error)) as caught, explain_disk(tmp_path):
        raise error
    assert caught.value is error


def test_errors_of_writing_know_their_file():
    """A device that is always full: opening it works and writing to it does not."""
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    with pytest.raises(OSError, match="No space left") as caught:
        append_jsonl(Path("/dev/full"), {"a": 1})
    assert caught.value.filename == "/dev/full"
