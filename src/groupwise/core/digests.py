"""Content digests: the same content has the same digest on every machine.

Paths, times and the order of dictionary keys never count.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

_LENGTH = 32


def digest_bytes(content: bytes) -> str:
    """Return the first 32 hex digits (128 bits) of the SHA-256 of ``content``."""
    return hashlib.sha256(content).hexdigest()[:_LENGTH]


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
        return hashlib.file_digest(stream, "sha256").hexdigest()[:_LENGTH]


def _list_files(folder: Path, *, above: frozenset[str]) -> Iterator[Path]:
    real = os.path.realpath(folder)
    if real in above:
        return
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            yield from _list_files(path, above=above | {real})
        elif path.is_file():
            yield path
