"""Content digests: the same content has the same digest on every machine.

Paths, times and the order of dictionary keys never count.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_LENGTH = 32


def digest_bytes(content: bytes) -> str:
    """Return the first 32 hex digits (128 bits) of the SHA-256 of ``content``."""
    return hashlib.sha256(content).hexdigest()[:_LENGTH]


def digest_json(value: Mapping[str, Any] | Sequence[Any] | str | float | bool | None) -> str:
    """Return the digest of a JSON value in canonical form (sorted keys, no spaces)."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return digest_bytes(text.encode())


def digest_file(path: Path) -> str:
    """Return the digest of a file's bytes, or of all files below a folder with their names."""
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if p.is_file())
        return digest_json([[str(p.relative_to(path)), digest_file(p)] for p in files])
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()[:_LENGTH]
