"""Lists every file and folder under a root, each once, through links but never in circles.

It knows nothing about what the folders mean.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path

from groupwise.core import DataError

LINK_DEPTH = 3
"""Links to folders are followed down to so many names below the root."""


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file, or anything else that is not a folder.

    ``place`` holds the names from the root; ``is_regular`` is False for broken links, pipes
    and devices.
    """

    place: tuple[str, ...]
    path: Path
    is_regular: bool


@dataclass(frozen=True, slots=True)
class FoundFolder:
    """A folder below the root; ``problem`` says why it was not looked into."""

    place: tuple[str, ...]
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class FoundTree:
    """All that is under a root; a folder comes before what is in it."""

    files: list[FoundFile] = field(default_factory=list[FoundFile])
    folders: list[FoundFolder] = field(default_factory=list[FoundFolder])


def list_tree(root: Path) -> FoundTree:
    """List a folder, in the order of names.

    A link to a folder is followed unless it lies deeper than ``LINK_DEPTH`` or leads back to a
    folder above it.

    Raises:
        DataError: if the root is not a folder or cannot be read.
    """
    if not root.is_dir():
        found = "a file" if root.exists() else "nothing"
        raise DataError(f"{root} is not a folder of photos", got=f"{found} there")
    tree = FoundTree()
    waiting = [_Visit(root, (), frozenset())]
    while waiting:
        waiting += reversed(_visit_folder(waiting.pop(), tree))
    if tree.folders[0].problem:
        raise DataError(f"cannot read the folder {root}", got=tree.folders[0].problem)
    del tree.folders[0]
    return tree


@dataclass(frozen=True, slots=True)
class _Visit:
    """A folder to look into, its place, and the real paths of the folders above it."""

    path: Path
    place: tuple[str, ...]
    ancestors: frozenset[str]


def _visit_folder(visit: _Visit, tree: FoundTree) -> list[_Visit]:
    """Note the folder and its files; return its folders."""
    real = os.path.realpath(visit.path)
    problem = _find_problem(visit, real)
    names: list[str] = []
    if problem is None:
        try:
            names = sorted(os.listdir(visit.path))
        except OSError as error:
            problem = f"cannot be read ({error.strerror})"
    tree.folders.append(FoundFolder(visit.place, problem))
    inside: list[_Visit] = []
    for name in names:
        path, place = visit.path / name, (*visit.place, name)
        if os.path.isdir(path):
            inside.append(_Visit(path, place, visit.ancestors | {real}))
        else:
            tree.files.append(FoundFile(place, path, os.path.isfile(path)))
    return inside


def _find_problem(visit: _Visit, real: str) -> str | None:
    if real in visit.ancestors:
        return "a link back to a folder above it"
    if len(visit.place) > LINK_DEPTH and visit.path.is_symlink():
        return "a link inside a group"
    return None
