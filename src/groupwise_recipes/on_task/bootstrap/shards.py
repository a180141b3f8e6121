"""Pictures with captions in webdataset shards, such as the caption part of Open-Qwen2VL-Data.

A shard is a tar file in which the members of a sample follow one another and are named by its key:
``000001.jpg`` (or ``png``, ``jpeg``, ``webp``), ``000001.txt`` with the caption, ``000001.json``
with what else is known, often the caption again. That is how img2dataset writes them.
Source: https://github.com/webdataset/webdataset and github.com/Victorwz/Open-Qwen2VL, whose code
for packing sequences reads these members.
"""

import json
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

_PICTURES = ("jpg", "png", "jpeg", "webp")
_WANTED = (*_PICTURES, "txt", "json")
_MAX_BYTES = 64 * 2**20
"""Of a member; a larger one is not read."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample of a shard: a picture with its caption, or why it cannot be used.

    Attributes:
        key: that its members share.
        picture: bytes of a picture file, not decoded yet.
        caption: None: it has none.
        problem: one of few reasons, or None.
    """

    key: str
    picture: bytes = b""
    caption: str | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class _Member:
    key: str
    kind: str
    content: bytes | None


def list_shards(folder: Path) -> list[Path]:
    """Return the shards in a folder and below it, sorted."""
    return sorted(folder.rglob("*.tar"))


def read_samples(shard: Path) -> Iterator[Sample]:
    """Yield the samples of a shard in order; nothing is unpacked.

    Where a shard is damaged or ends too early, one sample stands for the rest. The sample before
    the damage is part of it, because nobody knows whether all its members were read.
    """
    try:
        with tarfile.open(shard, "r:", errors="backslashreplace") as opened:
            for key, members in groupby(_read_members(opened), key=lambda member: member.key):
                yield _join(key, list(members))
    except (tarfile.TarError, OSError, EOFError) as error:
        yield Sample(f"rest ({error})", problem="damaged shard")


def _read_members(opened: tarfile.TarFile) -> Iterator[_Member]:
    for member in opened:
        folder, _, name = member.name.rpartition("/")
        stem, _, kind = name.partition(".")
        if member.isdir() or kind.lower() not in _WANTED:
            continue
        stream = opened.extractfile(member) if member.isreg() else None
        content = stream.read() if stream and member.size <= _MAX_BYTES else None
        if content is not None and len(content) < member.size:
            raise tarfile.ReadError("unexpected end of data")
        yield _Member(f"{folder}/{stem}" if folder else stem, kind.lower(), content)
    _check_end(opened)


def _check_end(opened: tarfile.TarFile) -> None:
    """Refuse an archive without its end: to tarfile, a damaged header is the end as well."""
    assert opened.fileobj is not None
    opened.fileobj.seek(opened.offset)
    if opened.fileobj.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
        raise tarfile.ReadError("no end of the archive")


def _join(key: str, members: list[_Member]) -> Sample:
    if any(member.content is None for member in members):
        return Sample(key, problem="member is no file, or too large")
    contents = {member.kind: member.content or b"" for member in members}
    if len(contents) < len(members):
        return Sample(key, problem="two members of one name")
    picture = next((contents[kind] for kind in _PICTURES if kind in contents), None)
    if picture is None:
        return Sample(key, problem="no picture")
    try:
        return Sample(key, picture, _read_caption(contents))
    except ValueError:
        return Sample(key, problem="caption cannot be read")


def _read_caption(contents: dict[str, bytes]) -> str | None:
    """Return the text, else the caption in the JSON."""
    if "txt" in contents:
        return contents["txt"].decode("utf-8")
    try:
        found = json.loads(contents.get("json", b"{}"))
    except RecursionError as error:
        raise ValueError(str(error)) from error
    caption = found.get("caption") if isinstance(found, dict) else None
    return caption if isinstance(caption, str) else None
