"""Clusters with the same file or near duplicates belong together: apart, one tells of the other."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from groupwise.core import DataError, digest_file
from groupwise.data.perceptual import Gallery, Sight, find_near_duplicates
from groupwise.data.splits import KEEPING_ORDER

T = TypeVar("T")

MAX_JOINED_SHARE = 0.05


def join_by_files(files: Mapping[str, Iterable[Path]]) -> dict[str, str]:
    """Return the set that each cluster belongs to, named after its first cluster.

    Two clusters that hold a file with the same bytes are in one set, and so is what they share
    files with in turn. Only files of the same size are read; one that is not there is left out.

    Args:
        files: of each cluster by its name.
    """
    place = {name: number for number, name in enumerate(files)}
    first = {name: name for name in files}
    for names in _find_shared(files):
        heads = {_find_head(first, name) for name in names}
        first.update(dict.fromkeys(heads, min(heads, key=place.__getitem__)))
    return {name: _find_head(first, name) for name in first}


def join_near_duplicates(sights: Sequence[Sight], *, mirrored: bool = False) -> dict[str, str]:
    """Return the set that each cluster belongs to, named after its first cluster.

    Args:
        sights: all pictures, before they are split.
        mirrored: whether mirror images count.

    Raises:
        DataError: if clusters that were joined have more than ``MAX_JOINED_SHARE`` of the
            pictures: likeness then runs through the data, and no split is clean.
    """
    first = {sight.cluster: sight.cluster for sight in sights}
    place = {name: number for number, name in enumerate(first)}
    while True:
        named = [replace(sight, cluster=_find_head(first, sight.cluster)) for sight in sights]
        pairs = find_near_duplicates(named, named, mirrored=mirrored)
        if not pairs:
            break
        for pair in pairs:
            heads = {_find_head(first, named[end].cluster) for end in (pair.index, pair.other)}
            first.update(dict.fromkeys(heads, min(heads, key=place.__getitem__)))
    joined = {name: _find_head(first, name) for name in first}
    _refuse_large(sights, joined)
    return joined


def _refuse_large(sights: Sequence[Sight], joined: Mapping[str, str]) -> None:
    members = Counter(joined.values())
    sizes = Counter(joined[sight.cluster] for sight in sights)
    largest = max((size for head, size in sizes.items() if members[head] > 1), default=0)
    if largest > MAX_JOINED_SHARE * len(sights):
        raise DataError(
            "near duplicates join too much of the data to split it",
            got=f"{largest} of {len(sights)} pictures in one cluster",
            expected=f"at most {MAX_JOINED_SHARE:.0%}",
            fix="set data.near_duplicates to drop or warn",
        )


def drop_near(
    splits: Mapping[str, Sequence[T]],
    *,
    list_paths: Callable[[T], Iterable[Path]],
    report: Callable[[T, str], None],
    mirrored: bool = False,
) -> dict[str, list[T]]:
    """Drop what looks like something of test, else of validation, else of train.

    Args:
        splits: rows by split; one that is not of ``KEEPING_ORDER`` keeps last.
        list_paths: the pictures of a row.
        report: is told each row that is dropped, and the split that it was of.
        mirrored: whether mirror images count.
    """
    known = [name for name in KEEPING_ORDER if name in splits]
    keeping = [*known, *(name for name in splits if name not in known)]
    kept: dict[str, list[T]] = {name: [] for name in splits}
    seen = Gallery()
    for name in keeping:
        rows = [(row, [*list_paths(row)]) for row in splits[name]]
        own = [Sight(path, name) for _, paths in rows for path in paths]
        pairs = seen.find(own, mirrored=mirrored)
        copies = {own[pair.index].path for pair in pairs}
        seen.add([sight for sight in own if sight.path not in copies])
        for row, paths in rows:
            if copies.isdisjoint(paths):
                kept[name].append(row)
            else:
                report(row, name)
    return kept


def _find_shared(files: Mapping[str, Iterable[Path]]) -> Iterator[set[str]]:
    """Yield the clusters of each file that several hold."""
    by_size: dict[int, list[tuple[str, Path]]] = defaultdict(list)
    for name, paths in files.items():
        for path in paths:
            if path.is_file():
                by_size[path.stat().st_size].append((name, path))
    for members in by_size.values():
        if len({name for name, _ in members}) > 1:
            by_digest: dict[str, set[str]] = defaultdict(set)
            for name, path in members:
                by_digest[digest_file(path)].add(name)
            yield from (names for names in by_digest.values() if len(names) > 1)


def _find_head(first: Mapping[str, str], name: str) -> str:
    while first[name] != name:
        name = first[name]
    return name
