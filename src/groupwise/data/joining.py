"""Groups that hold the same file belong together: apart, one would give the other away."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from groupwise.core import digest_file


def join_by_files(files: Mapping[str, Iterable[Path]]) -> dict[str, str]:
    """Return the set that each group belongs to, named after its first group.

    Two groups that hold a file with the same bytes are in one set, and so is what they share files
    with in turn. Only files of the same size are read; one that is not there is left out.

    Args:
        files: of each group by its name.
    """
    place = {name: number for number, name in enumerate(files)}
    first = {name: name for name in files}
    for names in _find_shared(files):
        heads = {_find_head(first, name) for name in names}
        first.update(dict.fromkeys(heads, min(heads, key=place.__getitem__)))
    return {name: _find_head(first, name) for name in first}


def _find_shared(files: Mapping[str, Iterable[Path]]) -> Iterator[set[str]]:
    """Yield the groups of each file that several hold."""
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
