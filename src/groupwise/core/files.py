"""Files that survive a crash, their digests and locks, and what a disk refuses in a sentence.

Whole files are replaced atomically. JSONL files that grow are flushed row by row, and a last line
torn by a crash is dropped on reading and cut off before the next append. The same content has the
same digest on every machine: paths, times and the order of dictionary keys never count.
"""

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, TypeVar, cast, overload

from pydantic import TypeAdapter, ValidationError

from groupwise.core.errors import DataError, GroupwiseError, RunError

T = TypeVar("T")

_DIGEST_LENGTH = 32
_FUNCTION = re.compile(r".*[/\\](?=[^/\\]+\.py:\w+$)", re.DOTALL)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# What libraries say that keep the system's error to themselves.
_FULL_WORDS = re.compile(
    "No space left on device|PytorchStreamWriter failed|inline_container.cc|os error 28"
    "|No usable temporary directory"
)
_OF_DISKS = (errno.EROFS, errno.EIO)
_REFUSED = (*_OF_DISKS, errno.EACCES, errno.EPERM, errno.ENAMETOOLONG)
_SETTLED_S = 2.0


def write_text(path: Path, text: str) -> None:
    """Replace ``path`` by ``text`` atomically, so that a reader sees the old or the new file."""
    replace_file(path, [text.encode()])


def replace_file(path: Path, parts: Iterable[bytes]) -> None:
    """Replace ``path`` atomically by what ``parts`` give, which may still read the old file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with _name_file(path), part.open("wb") as stream:
            stream.writelines(parts)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def write_json(path: Path, value: object) -> None:
    """Replace ``path`` by a JSON value, indented, with a final newline."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_jsonl(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Replace ``path`` by one JSON object per line, atomically."""
    write_text(path, "".join(map(_to_line, rows)))


def append_jsonl(path: Path, row: Mapping[str, Any]) -> None:
    """Append one row and flush it to disk; a torn last line is cut off first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _name_file(path), path.open("a+b") as stream:
        _cut_torn_line(stream.fileno())
        stream.write(_to_line(row).encode())
        stream.flush()
        os.fsync(stream.fileno())


def _to_line(row: Mapping[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n"


@contextmanager
def _name_file(path: Path) -> Generator[None]:
    """Let errors say which file it was: those of writing do not know its name."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def _cut_torn_line(descriptor: int) -> None:
    """Make the file end in a newline: complete a whole last row, cut off half of one."""
    if os.fstat(descriptor).st_size == 0:
        return
    with mmap(descriptor, 0, access=ACCESS_READ) as content:
        start = content.rfind(b"\n") + 1
        last = content[start:]
    if last and _parse_object(last) is None:
        os.ftruncate(descriptor, start)
    elif last:
        os.write(descriptor, b"\n")


@overload
def read_json(path: Path, kind: type[dict[Any, Any]]) -> dict[str, Any]: ...
@overload
def read_json(path: Path, kind: type[list[Any]]) -> list[Any]: ...
def read_json(path: Path, kind: type[Any]) -> Any:
    """Return the JSON value of a file, which holds a ``dict`` or a ``list``.

    Raises:
        DataError: if the file cannot be read, is not JSON, or holds something else.
    """
    try:
        value = json.loads(_read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not JSON ({error})", fix="make it again") from error
    if not isinstance(value, kind):
        expected = "a JSON object" if kind is dict else "a JSON list"
        raise DataError(f"{path} is not {expected}", got=type(value).__name__)
    return value


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """Return all rows; a last line without its newline that does not parse is left out.

    Raises:
        DataError: if the file is missing, or another line is not a JSON object.
    """
    lines = _read_bytes(path).split(b"\n")
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        row = _parse_object(line)
        if row is not None:
            rows.append(row)
        elif number < len(lines):
            raise DataError(f"{path} line {number} is not a JSON object", got=repr(line[:80]))
    return rows


def find_state(path: Path) -> tuple[int, ...] | None:
    """Return what tells the present content of a file from any other; None: nothing does yet.

    As with git, that is so for two seconds after it was written: another write could leave its time
    and its size as they are. The time is that of change: that of modification can be set by who
    writes the file, as copies and archives do. An OSError if there is no such file.
    """
    now = path.stat()
    is_settled = time.time() - now.st_ctime > _SETTLED_S
    return (now.st_dev, now.st_ino, now.st_size, now.st_ctime_ns) if is_settled else None


def read_once(path: Path) -> bytes:
    """Return what a small file holds, from memory where it did not change since it was read."""
    state = find_state(path)
    return path.read_bytes() if state is None else _read_in_state(path, state)


@lru_cache(maxsize=32)
def _read_in_state(path: Path, state: tuple[int, ...]) -> bytes:
    del state  # another one is another content
    return path.read_bytes()


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {path} ({error.strerror})") from error


def _parse_object(line: bytes) -> dict[str, Any] | None:
    try:
        value: object = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def parse_value(
    value: object,
    shape: TypeAdapter[T],
    problem: str,
    *,
    error: type[GroupwiseError] = DataError,
    fix: str | None = None,
) -> T:
    """Return what is made of a JSON value; of another shape, say ``problem`` and the first fault.

    Raises:
        GroupwiseError: of the kind of ``error``, with ``fix``, if the value has another shape.
    """
    try:
        return shape.validate_python(value)
    except ValidationError as fault:
        first = fault.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise error(problem, got=f"{place}: {first['msg']}", fix=fix) from fault


def digest_bytes(content: bytes) -> str:
    """Return the first 32 hex digits (128 bits) of the SHA-256 of ``content``."""
    return hashlib.sha256(content).hexdigest()[:_DIGEST_LENGTH]


def digest_json(value: Mapping[str, Any] | Sequence[Any] | str | float | bool | None) -> str:
    """Return the digest of a JSON value in canonical form (sorted keys, no spaces)."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return digest_bytes(text.encode("utf-8", "surrogatepass"))  # names of files need not be Unicode


def digest_file(path: Path) -> str:
    """Return the digest of a file's bytes, or of all files below a folder with their names.

    Links are followed, as whoever reads them does; one back to a folder above it is left out.

    Raises:
        OSError: if a file or folder cannot be read.
    """
    if path.is_dir():
        files = _list_files(path, above=frozenset())
        return digest_json([[str(p.relative_to(path)), digest_file(p)] for p in files])
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()[:_DIGEST_LENGTH]


def _list_files(folder: Path, *, above: frozenset[str]) -> Iterator[Path]:
    real = os.path.realpath(folder)
    if real in above:
        return
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            yield from _list_files(path, above=above | {real})
        elif path.is_file():
            yield path


def is_below(path: Path, folder: Path) -> bool:
    """Return whether a path leads into a folder, with links followed; False where nobody can say.

    What somebody else wrote into a file may name any file of this machine; it need not exist.
    """
    try:
        return path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError, ValueError):  # too long, a circle of links, a zero byte
        return False


def drop_folders(values: Any) -> Any:
    """Return settings in which functions of files are named alike wherever the files are.

    ``any/folder/rewards.py:length`` becomes ``rewards.py:length``, as a key or a value; the content
    of such a file is digested by itself. ``values`` are JSON values, nested as they may be.
    """
    if isinstance(values, Mapping):
        given = cast("Mapping[str, Any]", values)
        return {_FUNCTION.sub("", key): drop_folders(one) for key, one in given.items()}
    if isinstance(values, list):
        return [drop_folders(one) for one in cast("list[Any]", values)]
    return _FUNCTION.sub("", values) if isinstance(values, str) else values


def take_lock(path: Path, *, busy: RunError | Callable[[], object]) -> int:
    """Make a lock file and hold it until the descriptor that is returned is closed.

    The lock goes with the process, however that ends. ``busy`` is raised if another process holds
    it, or called before waiting for it.

    Raises:
        OSError: if the file cannot be made.
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
    """Return whether a process holds a lock file; several may look at once."""
    try:
        with path.open("rb") as stream:
            return not _try_lock(stream.fileno(), fcntl.LOCK_SH)
    except OSError:
        return False


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


@contextmanager
def explain_disk(folder: Path) -> Generator[None]:
    """Within this context a disk that does not take what is written is a RunError.

    It names the file, or else ``folder``, where the work is done, and what to do.
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
    cause: BaseException | None = error
    while cause is not None:  # libraries wrap the system's error
        is_full = isinstance(cause, OSError) and cause.errno in _FULL
        if is_full or _FULL_WORDS.search(str(cause)):
            named = cause.filename if isinstance(cause, OSError) else None
            # Asking for the temporary folder by writing there fails on a full disk.
            others = [folder, Path(os.environ.get("TMPDIR", "/tmp"))]
            places = [Path(os.fsdecode(named)).parent] if named else others
            free, place = min((_measure_free(place), place) for place in places)
            return (
                f"the disk is full; free some space in {place} ({free / 2**20:.1f} MiB are free) "
                "and run the same command again"
            )
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, GroupwiseError):
        return None  # It says itself what cannot be read or written.
    for cause in (error, error.__cause__):
        if isinstance(cause, OSError):
            place = os.fsdecode(cause.filename or folder)
            if cause.errno in _REFUSED and (cause.filename or cause.errno in _OF_DISKS):
                return f"cannot write to {place} ({cause.strerror})"
        elif (said := re.search(r"os error (\d+)", str(cause))) and int(said[1]) in _REFUSED:
            return f"cannot write to {folder} ({os.strerror(int(said[1]))})"
    return None


def _measure_free(place: Path) -> int:
    parents = (one for one in (place, *place.absolute().parents) if one.exists())
    return shutil.disk_usage(next(parents, place)).free
