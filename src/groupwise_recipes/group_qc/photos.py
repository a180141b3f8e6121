"""Loads a folder of inspection photos: ``<root>/<mission>/{审核通过|审核不通过}/<group>/*.jpg``.

The names of the two folders come from the config.

Every file is a photo of a group or is dropped with a counted reason, and every folder that is
not used is listed. Names and places alone decide: pictures are not opened here. One that cannot
be decoded stays in its group, which then fails in Stage A and is tried again in the next run; to
leave it out could hide the defect that it shows.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from groupwise.core import DataError, Picture, digest_json, read_picture
from groupwise.data import DropLog
from groupwise_recipes.group_qc.folders import FoundFile, FoundFolder, FoundTree, list_tree
from groupwise_recipes.group_qc.missions import MissionTable, describe_unknown

Label = Literal["pass", "fail"]
LABELS: tuple[Label, Label] = ("pass", "fail")
LabelFolders = Mapping[str, Label]
"""Names of folders of photo groups that were judged, and what they were judged."""

SUFFIXES = (".jpg", ".jpeg", ".png")

OUTSIDE = "outside a group's folder"

_GROUP_ID = re.compile(r"(QC-[A-Za-z]+-[0-9]{8}-[0-9]+)")
_NEGATION = re.compile("[不未没非否]|no|un|fail", re.IGNORECASE)
_DIGITS = re.compile(r"([0-9]+)")

Place = tuple[str, ...]
"""Names from the root to a file or folder."""


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


@dataclass(frozen=True, slots=True)
class Conflict:
    """One id under pass and fail of one mission: all its groups are kept, apart."""

    mission: str
    group_id: str
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LoadedGroups:
    """What came out of a folder: ``num_files == num_photos + drops.total``.

    Attributes:
        groups: by mission as in the table, then pass before fail, then natural order.
        drops: files that are in no group.
        skipped: folders that gave no photo group, and links that lead nowhere new.
        conflicts: ids under both labels.
        num_photos: photos of all groups.
        num_files: files found under the root, in whatever folder; of Stage A's files, the lines.
        records: of Stage A, if the groups come from its files.
    """

    groups: tuple[PhotoGroup, ...]
    drops: DropLog
    skipped: DropLog
    conflicts: tuple[Conflict, ...]
    num_photos: int
    num_files: int
    records: tuple[dict[str, Any], ...] = ()


def load_photo_groups(
    root: Path, missions: MissionTable, folders: LabelFolders, *, for_prediction: bool = False
) -> LoadedGroups:
    """Load a folder of photos.

    Args:
        root: folder of mission folders.
        missions: the table that both stages use.
        folders: names of the folders of photo groups that were judged.
        for_prediction: photos need no verdict: a folder of photos directly in a mission's folder
            is a group without a label, and unknown missions are dropped instead of refused.

    Raises:
        DataError: if the root is not a folder, a mission is unknown, or there is no group.
    """
    tree = list_tree(root)
    if not for_prediction:
        found = (folder.place[0] for folder in tree.folders if len(folder.place) == 1)
        missions.require((name for name in found if not name.startswith(".")), where=str(root))
    sorter = _Sorter(missions, folders, for_prediction, tree)
    drops, photos = sorter.sort_files()
    skipped = sorter.list_skipped(set(photos))
    groups = _build_groups(photos, missions, folders)
    if not groups:
        raise DataError(
            f"{root} has no photo group",
            got=_summarise(drops, skipped),
            expected=f"<mission>/{{{'|'.join(folders)}}}/<group>/*.{{jpg,jpeg,png}}",
        )
    return LoadedGroups(
        groups=groups,
        drops=drops,
        skipped=skipped,
        conflicts=find_conflicts(groups),
        num_photos=sum(len(group.photos) for group in groups),
        num_files=len(tree.files),
    )


def _summarise(drops: DropLog, skipped: DropLog) -> str:
    """Return why files were dropped and the first folders that were skipped."""
    files = [f"{number} x {reason}" for reason, number in drops.counts.items()]
    folders = [f"{drop.reason} {drop.where}" for drop in skipped.rows[:3]]
    return ", ".join(files + folders) or "no files"


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
    """Return the digest of what ``load_photo_groups`` sees: all places, and the bytes of files.

    Raises:
        DataError: if the root is not a folder or cannot be read.
    """
    tree = list_tree(root)
    files = [
        [*file.place, find_picture(file.path).digest if file.is_regular else None]
        for file in tree.files
    ]
    return digest_json([files, [[*folder.place, folder.problem] for folder in tree.folders]])


def _split_numbers(text: str) -> list[str | int]:
    """Return text and numbers in turn, so that lists of them can be compared."""
    parts = _DIGITS.split(text.casefold())
    return [int(part) if place % 2 else part for place, part in enumerate(parts)]


class _Sorter:
    """Tells photos from what is dropped, by their places."""

    def __init__(
        self, missions: MissionTable, folders: LabelFolders, for_prediction: bool, tree: FoundTree
    ) -> None:
        self._missions = missions
        self._folders = folders
        self._for_prediction = for_prediction
        self._tree = tree
        self._holders = {file.place[:-1] for file in tree.files if _is_photo_name(file.place[-1])}
        self._parents = {folder.place[:-1] for folder in tree.folders}

    def sort_files(self) -> tuple[DropLog, dict[Place, list[FoundFile]]]:
        """Return what is dropped, and the photos by the place of their group."""
        drops, photos = DropLog(), defaultdict[Place, list[FoundFile]](list)
        for file in self._tree.files:
            reason = self._judge_file(file)
            if reason:
                drops.add(reason, _show(file.place))
            else:
                photos[file.place[:-1]].append(file)
        return drops, dict(photos)

    def _judge_file(self, file: FoundFile) -> str | None:
        """Return why a file is no photo of a group, or None if it is one."""
        place = file.place
        if not all(_is_unicode(name) for name in place):
            return "name is not Unicode"
        if any(name.startswith(".") for name in place):
            return "hidden"
        if reason := self._judge_folder(place[:-1]):
            return reason
        if not file.is_regular:
            return "not a regular file"
        return None if _is_photo_name(place[-1]) else "not a photo by its extension"

    def _judge_folder(self, place: Place) -> str | None:
        """Return why files at a place are in no group, or None if they are in one."""
        if place and place[0] not in self._missions:
            return "unknown mission"
        if len(place) >= 2 and place[1] not in self._folders:
            return self._judge_unlabelled(place)
        if len(place) < 3:
            return OUTSIDE
        return None if len(place) == 3 else "in a folder inside a group"

    def _judge_unlabelled(self, place: Place) -> str | None:
        top = place[:2]
        is_group = top in self._holders or top not in self._parents
        if not (self._for_prediction and is_group):
            return "unknown label folder"
        return None if len(place) == 2 else "in a folder inside a group"

    def list_skipped(self, groups: set[Place]) -> DropLog:
        """Return the folders without a group that are not inside another one of them."""
        skipped, inside = DropLog(), set[Place]()
        for folder in self._tree.folders:
            reason = folder.problem or self._explain_folder(folder, groups)
            if folder.place[:-1] in inside:
                inside.add(folder.place)
            elif reason:
                skipped.add(reason, self._describe_folder(folder, reason))
                inside.add(folder.place)
        return skipped

    def _explain_folder(self, folder: FoundFolder, groups: set[Place]) -> str | None:
        """Return why a folder is not used, or None if it is a group or leads to groups."""
        place = folder.place
        if not all(_is_unicode(name) for name in place):
            return "name is not Unicode"
        if place[-1].startswith("."):
            return "hidden"
        reason = self._judge_folder(place)
        if reason is None and place not in groups:
            return "empty group"
        return None if reason == OUTSIDE else reason

    def _describe_folder(self, folder: FoundFolder, reason: str) -> str:
        shown = _show(folder.place)
        if reason == "unknown mission":
            return f"{shown}: {describe_unknown(folder.place[0], self._missions.names)}"
        if reason == "unknown label folder":
            return (
                f"{shown}: {describe_unknown(folder.place[1], self._list_likely(folder.place[1]))}"
            )
        return shown

    def _list_likely(self, name: str) -> list[str]:
        """Return the folders that can be meant: 审核未通过 is like 审核通过, but means fail."""
        negated = bool(_NEGATION.search(name))
        return [known for known in self._folders if bool(_NEGATION.search(known)) == negated]


def _build_groups(
    photos: dict[Place, list[FoundFile]], missions: MissionTable, folders: LabelFolders
) -> tuple[PhotoGroup, ...]:
    order = {name: number for number, name in enumerate(missions.names)}
    labels = {name: number for number, name in enumerate(folders)}

    def make_key(place: Place) -> tuple[object, ...]:
        label = labels.get(place[1], len(labels))
        return order[place[0]], label, _split_numbers(place[-1]), place[-1]

    return tuple(
        _build_group(place, photos[place], folders) for place in sorted(photos, key=make_key)
    )


def _build_group(place: Place, files: list[FoundFile], folders: LabelFolders) -> PhotoGroup:
    paths = {file.place[-1]: file.path for file in files}
    names = sort_naturally(paths)
    return PhotoGroup(
        key="/".join(place),
        group_id=find_group_id(names[0], place[-1]),
        mission=place[0],
        label=folders.get(place[1]) if len(place) == 3 else None,
        photos=tuple(paths[name] for name in names),
    )


def find_conflicts(groups: Iterable[PhotoGroup]) -> tuple[Conflict, ...]:
    """Return the ids that stand under both labels of one mission."""
    found = defaultdict[tuple[str, str], list[PhotoGroup]](list)
    for group in groups:
        if group.label is not None:
            found[group.mission, group.group_id].append(group)
    return tuple(
        Conflict(mission, group_id, tuple(group.key for group in members))
        for (mission, group_id), members in found.items()
        if len({group.label for group in members}) > 1
    )


def _is_photo_name(name: str) -> bool:
    return not name.startswith(".") and name.lower().endswith(SUFFIXES)


def _is_unicode(name: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in name)


def _show(place: Place) -> str:
    return "/".join(place).encode("utf-8", "backslashreplace").decode()
