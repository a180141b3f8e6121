"""Loads a folder of inspection photos: ``<root>/<mission>/{审核通过|审核不通过}/<group>/*.jpg``.

The names of the two folders come from the config.

Every file is a photo of a group or is dropped with a counted reason, and every folder that is
not used is listed. Names and places alone decide: pictures are not opened here. One that cannot
be decoded stays in its group, which then fails in Stage A and is tried again in the next run; to
leave it out could hide the defect that it shows.
"""

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

from groupwise.core import DataError, Picture, digest_json, read_picture
from groupwise.data.examples import DropLog
from groupwise_recipes.group_qc.missions import MissionTable, describe_unknown

Label = Literal["pass", "fail"]
LABELS: tuple[Label, Label] = ("pass", "fail")
LabelFolders = Mapping[str, Label]
"""Names of folders of photo groups that were judged, and what they were judged."""

Place = tuple[str, ...]
"""Names from the root to a file or folder."""

SUFFIXES = (".jpg", ".jpeg", ".png")
LINK_DEPTH = 3
"""Links to folders are followed down to so many names below the root."""

_OUTSIDE, _INSIDE = "outside a group's folder", "in a folder inside a group"
_GROUP_ID = re.compile(r"(QC-[A-Za-z]+-[0-9]{8}-[0-9]+)")
_NEGATION = re.compile("[不未没非否]|no|un|fail", re.IGNORECASE)
_DIGITS = re.compile(r"([0-9]+)")


@dataclass(frozen=True, slots=True)
class PhotoGroup:
    """The photos of one work order for one mission.

    Attributes:
        key: folder of the group below the root; unique.
        group_id: number of the work order; what splits must not divide. It is not unique: one
            order has several missions, and a conflict has it under pass and fail.
        mission: name in the mission table.
        label: None where nobody judged.
        photos: in natural order of their names; at least one.
        digests: of the photos' bytes, in the same order; empty where nobody read them yet.
    """

    key: str
    group_id: str
    mission: str
    label: Label | None
    photos: tuple[Path, ...]
    digests: tuple[str, ...] = ()

    def list_images(self, root: Path) -> list[str]:
        """Return the places of the photos below a folder."""
        return [path.relative_to(root).as_posix() for path in self.photos]

    def read_digests(self) -> Self:
        """Return the group with the digests of its photos as they are now."""
        return replace(self, digests=tuple(find_picture(path).digest for path in self.photos))


@dataclass(frozen=True, slots=True)
class LoadedGroups:
    """What came out of a folder: ``num_files == num_photos + drops.total``.

    Attributes:
        groups: by mission as in the table, then pass before fail, then natural order.
        drops: files that are in no group.
        skipped: folders that gave no photo group, and links that lead nowhere new.
        num_files: files found under the root, in whatever folder; of Stage A's files, the lines.
        records: of Stage A, if the groups come from its files.
    """

    groups: tuple[PhotoGroup, ...]
    drops: DropLog
    skipped: DropLog
    num_files: int
    records: tuple[dict[str, Any], ...] = ()

    @property
    def num_photos(self) -> int:
        """Photos of all groups."""
        return sum(len(group.photos) for group in self.groups)

    @property
    def conflicts(self) -> list[str]:
        """Ids under pass and fail of one mission, each with its groups: all are kept, apart."""
        found = defaultdict[tuple[str, str], list[PhotoGroup]](list)
        for group in self.groups:
            found[group.mission, group.group_id].append(group)
        return [
            f"{mission}: {group_id} ({', '.join(group.key for group in members)})"
            for (mission, group_id), members in found.items()
            if {group.label for group in members} >= set(LABELS)
        ]


def load_photo_groups(
    root: Path, missions: MissionTable, folders: LabelFolders, *, for_prediction: bool = False
) -> LoadedGroups:
    """Load a folder of photos."""
    tree = _list_tree(root)
    if not for_prediction:
        found = (place[0] for place in tree.folders if len(place) == 1)
        missions.require((name for name in found if not name.startswith(".")), where=str(root))
    layout = _Layout(tree, missions, folders, for_prediction)
    drops, photos = DropLog(), defaultdict[Place, list[str]](list)
    for place in tree.files:
        reason = layout.judge_file(place)
        if reason:
            drops.add(reason, _show(place))
        else:
            photos[place[:-1]].append(place[-1])
    skipped = layout.list_skipped(photos)
    if not photos:
        files = [f"{number} x {reason}" for reason, number in drops.counts.items()]
        first = [f"{drop.reason} {drop.where}" for drop in skipped.rows[:3]]
        raise DataError(
            f"{root} has no photo group",
            got=", ".join(files + first) or "no files",
            expected=f"<mission>/{{{'|'.join(folders)}}}/<group>/*.{{jpg,jpeg,png}}",
        )
    groups = [_build_group(place, photos[place], root, folders) for place in layout.sort(photos)]
    return LoadedGroups(tuple(groups), drops, skipped, len(tree.files))


def sort_naturally(names: Iterable[str]) -> list[str]:
    """Sort file names so that numbers count: ``a-002`` before ``a-010``, ``img2`` before ``img10``.

    Case does not count and a suffix only between equal names.
    """
    return sorted(names, key=lambda name: (_split_numbers(Path(name).stem), name))


def find_group_id(first_photo: str, folder: str) -> str:
    """Return the id at the beginning of the first photo's name, else the folder's name."""
    match = _GROUP_ID.match(Path(first_photo).stem)
    return match[1] if match else folder


def find_picture(path: Path) -> Picture:
    """Return the picture; one that cannot be read fails when it is decoded, not here."""
    try:
        return read_picture(path)
    except DataError:
        return Picture(path, "unreadable")


def digest_photos(root: Path) -> str:
    """Return the digest of what ``load_photo_groups`` sees: all places, and the bytes of files."""
    tree = _list_tree(root)
    paths = [root.joinpath(*place) for place in tree.files]
    digests = [find_picture(path).digest if path.is_file() else None for path in paths]
    return digest_json([[*zip(tree.files, digests, strict=True)], [*tree.folders.items()]])


@dataclass(frozen=True, slots=True)
class _Tree:
    """All that is under a folder: files, and folders with why they were not looked into, if so."""

    root: Path
    files: list[Place]
    folders: dict[Place, str]


def _list_tree(root: Path) -> _Tree:
    """List a folder, in the order of names; through links to folders, but never in circles."""
    if not root.is_dir():
        found = "a file" if root.exists() else "nothing"
        raise DataError(f"{root} is not a folder of photos", got=f"{found} there")
    tree = _Tree(root, [], {})
    waiting: list[tuple[Place, frozenset[str]]] = [((), frozenset())]
    while waiting:
        place, above = waiting.pop()
        path = root.joinpath(*place)
        real = os.path.realpath(path)
        names, tree.folders[place] = _list_names(path, len(place), is_above=real in above)
        inside = {name: os.path.isdir(path / name) for name in names}
        tree.files.extend((*place, name) for name in names if not inside[name])
        waiting += [((*place, n), above | {real}) for n in reversed(names) if inside[n]]
    problem = tree.folders.pop(())
    if problem:
        raise DataError(f"cannot read the folder {root}", got=problem)
    return tree


def _list_names(path: Path, depth: int, *, is_above: bool) -> tuple[list[str], str]:
    """Return what is in a folder, and why nothing was looked for."""
    if is_above:
        return [], "a link back to a folder above it"
    if depth > LINK_DEPTH and path.is_symlink():
        return [], "a link inside a group"
    try:
        return sorted(os.listdir(path)), ""
    except OSError as error:
        return [], f"cannot be read ({error.strerror})"


class _Layout:
    """Tells photos from what is dropped, by their places."""

    def __init__(
        self, tree: _Tree, missions: MissionTable, folders: LabelFolders, for_prediction: bool
    ) -> None:
        self._tree, self._missions, self._folders = tree, missions, folders
        self._for_prediction = for_prediction
        self._holders = {place[:-1] for place in tree.files if _is_photo_name(place[-1])}
        self._parents = {place[:-1] for place in tree.folders}

    def judge_file(self, place: Place) -> str | None:
        """Return why a file is no photo of a group, or None if it is one."""
        if reason := _judge_names(place) or self._judge_folder(place[:-1]):
            return reason
        if not self._tree.root.joinpath(*place).is_file():
            return "not a regular file"
        return None if _is_photo_name(place[-1]) else "not a photo by its extension"

    def list_skipped(self, groups: Iterable[Place]) -> DropLog:
        """Return the folders without a group that are not inside another one of them."""
        skipped, inside, known = DropLog(), set[Place](), set(groups)
        for place, problem in self._tree.folders.items():
            reason = problem or _judge_names(place) or self._judge_folder(place)
            if reason is None and place not in known:
                reason = "empty group"
            if place[:-1] in inside:
                inside.add(place)
            elif reason and reason != _OUTSIDE:
                skipped.add(reason, self._describe_folder(place, reason))
                inside.add(place)
        return skipped

    def sort(self, groups: Iterable[Place]) -> list[Place]:
        """Return places by mission as in the table, then pass before fail, then natural order."""
        missions, labels = list(self._missions.names), [*self._folders]

        def make_key(place: Place) -> tuple[object, ...]:
            label = labels.index(place[1]) if place[1] in labels else len(labels)
            return missions.index(place[0]), label, _split_numbers(place[-1]), place[-1]

        return sorted(groups, key=make_key)

    def _judge_folder(self, place: Place) -> str | None:
        """Return why files at a place are in no group, or None if they are in one."""
        if place and place[0] not in self._missions:
            return "unknown mission"
        depth = 3
        if len(place) >= 2 and place[1] not in self._folders:
            top, depth = place[:2], 2
            is_group = top in self._holders or top not in self._parents
            if not (self._for_prediction and is_group):
                return "unknown label folder"
        if len(place) < depth:
            return _OUTSIDE
        return None if len(place) == depth else _INSIDE

    def _describe_folder(self, place: Place, reason: str) -> str:
        """Return a folder's place, and what its name should have been."""
        shown = _show(place)
        if reason == "unknown mission":
            return f"{shown}: {describe_unknown(place[0], self._missions.names)}"
        if reason != "unknown label folder":
            return shown
        # 审核未通过 is like 审核通过, but means fail.
        negated = bool(_NEGATION.search(place[1]))
        likely = [known for known in self._folders if bool(_NEGATION.search(known)) == negated]
        return f"{shown}: {describe_unknown(place[1], likely)}"


def _build_group(place: Place, names: list[str], root: Path, folders: LabelFolders) -> PhotoGroup:
    ordered = sort_naturally(names)
    return PhotoGroup(
        key="/".join(place),
        group_id=find_group_id(ordered[0], place[-1]),
        mission=place[0],
        label=folders.get(place[1]) if len(place) == 3 else None,
        photos=tuple(root.joinpath(*place, name) for name in ordered),
    )


def _judge_names(place: Place) -> str | None:
    if any("\ud800" <= letter <= "\udfff" for name in place for letter in name):
        return "name is not Unicode"
    return "hidden" if any(name.startswith(".") for name in place) else None


def _split_numbers(text: str) -> list[str | int]:
    """Return text and numbers in turn, so that lists of them can be compared."""
    parts = _DIGITS.split(text.casefold())
    return [int(part) if place % 2 else part for place, part in enumerate(parts)]


def _is_photo_name(name: str) -> bool:
    return not name.startswith(".") and name.lower().endswith(SUFFIXES)


def _show(place: Place) -> str:
    return "/".join(place).encode("utf-8", "backslashreplace").decode()
