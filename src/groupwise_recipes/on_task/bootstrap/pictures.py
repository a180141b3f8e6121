"""Finding pictures in a folder or in shards, and storing each once, small and upright."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groupwise.core import (
    DataError,
    digest_file,
    digest_json,
    is_below,
    read_picture,
    store_picture,
)
from groupwise.data.examples import DropLog
from groupwise_recipes.on_task.bootstrap.shards import list_shards, read_samples

_SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"}


@dataclass(frozen=True, slots=True)
class Found:
    """A picture that was found.

    Attributes:
        where: its file below the folder; of a shard also the name of the sample.
        path: where it can be read until the next one is asked for.
        session: what is never split.
        caption: that came with it, or None.
        problem: why it cannot be used; None: nothing is known yet.
    """

    where: str
    path: Path
    session: str
    caption: str | None = None
    problem: str | None = None


def list_sources(folder: Path) -> list[Path]:
    """Return the shards of a folder; if it has none, the files that are named like pictures."""
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder", expected="a folder of pictures or shards")
    found = list_shards(folder) or sorted(
        path for path in folder.rglob("*") if path.suffix.lower() in _SUFFIXES
    )
    if not found:
        raise DataError(f"{folder} has no pictures and no shards", expected="*.jpg, *.png, *.tar")
    return found


def digest_sources(folder: Path) -> str:
    """Return the digest of the pictures or shards of a folder, by name and content."""
    files = [path for path in list_sources(folder) if path.is_file()]
    return digest_json(
        [[_write_name(path.relative_to(folder)), digest_file(path)] for path in files]
    )


def store_pictures(
    source: Path, folder: Path, *, max_pixels: int
) -> tuple[list[dict[str, Any]], DropLog, int]:
    """Store the pictures of ``source`` in ``folder`` as PNG files.

    Returns:
        A row for each picture that is kept, what was dropped, and how many were found: that many
        are kept or dropped.
    """
    rows, drops, seen, num_found = list[dict[str, Any]](), DropLog(), set[str](), 0
    for found in _find_pictures(source, folder / "sample"):
        num_found += 1
        try:
            row = _store(found, folder, max_pixels)
        except DataError as error:
            drops.add(found.problem or "unreadable picture", f"{found.where} ({error})")
            continue
        if row["digest"] in seen:
            drops.add("repeats another picture", found.where)
            continue
        seen.add(row["digest"])
        rows.append(row)
    (folder / "sample").unlink(missing_ok=True)
    if not rows:
        raise DataError(f"no picture of {source} can be used", got=str(drops.counts))
    return rows, drops, num_found


def _store(found: Found, folder: Path, max_pixels: int) -> dict[str, Any]:
    if found.problem is not None:
        raise DataError(found.problem)
    given = read_picture(found.path)
    place = folder / "pictures" / f"{given.digest}.png"
    stored = store_picture(given, place, max_pixels=max_pixels)
    return {
        "image": place.relative_to(folder).as_posix(),
        "digest": stored.digest,
        "file": found.where,
        "file_digest": given.digest,
        "session": found.session,
        "caption": found.caption,
    }


def _find_pictures(folder: Path, scratch: Path) -> Iterator[Found]:
    sources = list_sources(folder)
    if sources[0].suffix != ".tar":
        yield from (_find_file(path, folder) for path in sources)
        return
    for shard in sources:
        for sample in read_samples(shard):
            where = f"{_write_name(shard.relative_to(folder))}:{sample.key}"
            if sample.problem is None:
                scratch.write_bytes(sample.picture)
            yield Found(where, scratch, where, sample.caption, sample.problem)


def _find_file(path: Path, folder: Path) -> Found:
    where = path.relative_to(folder)
    session = where if where.parent == Path() else where.parent
    problem = None if is_below(path, folder) else "lies outside of the folder"
    return Found(_write_name(where), path, _write_name(session), problem=problem)


def _write_name(path: Path) -> str:
    """Return a path as text; bytes of a name that are not UTF-8 are spelled out."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
