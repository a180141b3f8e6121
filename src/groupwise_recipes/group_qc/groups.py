"""The prepare step: groups of photos into splits, and what a preset is taught from.

Groups that share an id (one order under several missions, an id under pass and fail) or a photo
stay in one split. Summaries are not read here.
"""

import csv
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from groupwise.core import (
    DataError,
    Example,
    derive_seed,
    digest_json,
    open_picture,
    read_json,
    read_jsonl,
    read_picture,
    write_json,
    write_jsonl,
)
from groupwise.data import (
    DropLog,
    Sight,
    find_copies,
    join_by_files,
    join_near_duplicates,
    split_by_shares,
)
from groupwise_drawn.cabinets import write_cabinets
from groupwise_recipes.group_qc.config import GroupData, GroupQcConfig, PhotoLabels
from groupwise_recipes.group_qc.photos import (
    LoadedGroups,
    PhotoGroup,
    digest_photos,
    find_picture,
    load_photo_groups,
)

SPLITS = ("warmup", "train", "validation", "test")
TEACH = "teach"
_GROUPS, _DESCRIPTIONS, _SOURCE = "groups.jsonl", "descriptions.jsonl", "source.json"
_DRAWN = "drawn"
_KEEPING_ORDER = ("test", "validation", "train", "warmup", TEACH)


@dataclass(frozen=True, slots=True)
class TaughtPhoto:
    """A photo of a group that teaches Stage A, with its true description."""

    path: Path
    mission: str
    group_id: str
    description: str


def prepare_groups(config: GroupQcConfig, folder: Path) -> None:
    """Write the groups with their splits, what was dropped, and the taught descriptions.

    Raises:
        DataError: if there are no groups, a mission is unknown, or a photo that is to teach
            Stage A has no description.
    """
    root = find_root(config, folder)
    if config.data.root is None:
        _draw(config, root)
    loaded = load_photo_groups(root, config.data.load_missions())
    joined, splits, taught = split_loaded(config, loaded, root)
    rows = [
        {**_to_row(group, root), "split": split}
        for split, groups in splits.items()
        for group in groups
    ]
    write_jsonl(folder / _GROUPS, rows)
    write_json(folder / _SOURCE, describe_source(loaded, joined))
    if config.model.is_preset:
        write_jsonl(folder / _DESCRIPTIONS, [_photo_to_row(photo, root) for photo in taught])


def split_loaded(
    config: GroupQcConfig, loaded: LoadedGroups, root: Path
) -> tuple[dict[str, str], dict[str, list[PhotoGroup]], list[TaughtPhoto]]:
    """Return the ids that are joined, the groups by split, and the photos that teach a preset.

    Raises:
        DataError: if a split would be empty, or a photo that is to teach has no description.
    """
    joined = _join(loaded.groups, config.data)
    splits = _split(loaded.groups, config.data, joined=joined, seed=config.seed)
    if config.data.near_duplicates == "drop":
        splits = _drop_near(splits, loaded.drops, mirrored=config.data.mirror_invariant)
    if not config.model.is_preset:
        return joined, splits, []
    groups = splits.get(TEACH) or [*splits["warmup"], *splits["train"]]
    return joined, splits, _describe_photos(groups, root, config.data.photo_labels)


def digest_source(data: GroupData) -> str:
    """Return the digest of what is read from the root: its photos, and the table of labels.

    Raises:
        DataError: if the root is not a folder or cannot be read.
    """
    assert data.root is not None
    labels = data.photo_labels
    table = None if labels is None else find_picture(data.root / labels.file).digest
    return digest_json([digest_photos(data.root), table])


def find_root(config: GroupQcConfig, prepared: Path) -> Path:
    """Return the folder of the photos: the given one, or the one drawn into."""
    return prepared / _DRAWN if config.data.root is None else config.data.root


def read_groups(config: GroupQcConfig, prepared: Path) -> dict[str, list[PhotoGroup]]:
    """Return the groups by split, those that only teach Stage A under ``teach``."""
    found: dict[str, list[PhotoGroup]] = {name: [] for name in (*SPLITS, TEACH)}
    root = find_root(config, prepared)
    for row in read_jsonl(prepared / _GROUPS):
        found[row["split"]].append(
            PhotoGroup(
                key=row["key"],
                group_id=row["group_id"],
                mission=row["mission"],
                label=row["label"],
                photos=tuple(root / photo for photo in row["photos"]),
                digests=tuple(row["digests"]),
            )
        )
    return found


def read_taught(config: GroupQcConfig, prepared: Path) -> list[TaughtPhoto]:
    """Return the photos that teach Stage A."""
    root = find_root(config, prepared)
    return [
        TaughtPhoto(root / row["photo"], row["mission"], row["group_id"], row["description"])
        for row in read_jsonl(prepared / _DESCRIPTIONS)
    ]


def show_photos(
    examples: Sequence[Example], config: GroupQcConfig, prepared: Path
) -> list[Example]:
    """Return Stage B examples with the photos of their groups, for what looks at pictures."""
    root = find_root(config, prepared)
    return [
        example.with_pictures([read_picture(root / image) for image in example.fields["images"]])
        for example in examples
    ]


def read_source(prepared: Path) -> dict:
    """Return what ``describe_source`` said."""
    return read_json(prepared / _SOURCE, dict)


def describe_source(loaded: LoadedGroups, joined: Mapping[str, str]) -> dict:
    """Return what was found, used, dropped, skipped, joined and in conflict, as JSON values."""
    return {
        "num_files": loaded.num_files,
        "num_photos": loaded.num_photos,
        "num_groups": len(loaded.groups),
        "drops": loaded.drops.to_json(),
        "skipped": loaded.skipped.to_json(),
        "conflicts": [
            {"mission": one.mission, "group_id": one.group_id, "keys": list(one.keys)}
            for one in loaded.conflicts
        ],
        "joined": [[name, first] for name, first in joined.items() if name != first],
    }


def _draw(config: GroupQcConfig, root: Path) -> None:
    drawn = config.data.drawn
    write_cabinets(
        root,
        num_groups=drawn.num_groups,
        seed=derive_seed(config.seed, "cabinets"),
        pass_share=drawn.pass_share,
        size=(drawn.width, drawn.height),
        variety=drawn.variety,
    )


def _split(
    groups: Sequence[PhotoGroup], data: GroupData, *, joined: Mapping[str, str], seed: int
) -> dict[str, list[PhotoGroup]]:
    """Split by group id, missions and labels about evenly; joined ids go to one side."""
    kinds: dict[str, list[str]] = defaultdict(list)
    for group in groups:
        kinds[joined[group.group_id]].append(f"{group.mission}/{group.label}")
    shares = data.list_shares()
    side = split_by_shares(
        {name: "+".join(sorted(found)) for name, found in kinds.items()}, shares=shares, seed=seed
    )
    splits: dict[str, list[PhotoGroup]] = {name: [] for name in shares}
    for group in groups:
        splits[side[joined[group.group_id]]].append(group)
    if "warmup" not in splits:
        splits["warmup"] = []
    return splits


def _join(groups: Sequence[PhotoGroup], data: GroupData) -> dict[str, str]:
    """Return for each id the first of those that it shares photos with, directly or in turn.

    Photos that look alike are shared, too, where the settings say so.
    """
    photos: dict[str, list[Path]] = defaultdict(list)
    for group in groups:
        photos[group.group_id] += group.photos
    joined = join_by_files(photos)
    if data.near_duplicates != "join":
        return joined
    sights = [
        Sight(path, joined[name])
        for name, paths in photos.items()
        for path in paths
        if _can_decode(path)
    ]
    alike = join_near_duplicates(sights, mirrored=data.mirror_invariant)
    return {name: alike.get(first, first) for name, first in joined.items()}


def _drop_near(
    splits: Mapping[str, list[PhotoGroup]], drops: DropLog, *, mirrored: bool
) -> dict[str, list[PhotoGroup]]:
    """Drop groups with a photo that looks like one of test, else of validation, else of train."""
    sights = {
        name: [
            Sight(path, group.group_id)
            for group in groups
            for path in group.photos
            if _can_decode(path)
        ]
        for name, groups in splits.items()
    }
    copies = find_copies(sights, keeping=_KEEPING_ORDER, mirrored=mirrored)
    kept: dict[str, list[PhotoGroup]] = {}
    for name, groups in splits.items():
        kept[name] = [group for group in groups if not copies[name] & set(group.photos)]
        gone = [group for group in groups if copies[name] & set(group.photos)]
        for path in (path for group in gone for path in group.photos):
            drops.add("group with a near duplicate of another split", f"{path} ({name})")
        if gone and not kept[name]:
            raise DataError(
                f"all groups of the split {name} look like groups of another split",
                fix="set data.near_duplicates to join or warn",
            )
    return kept


def _can_decode(photo: Path) -> bool:
    """Say whether a photo can be looked at; a group with one that cannot fails in Stage A."""
    try:
        open_picture(photo)
    except DataError:
        return False
    return True


def _describe_photos(
    groups: Sequence[PhotoGroup], root: Path, labels: PhotoLabels | None
) -> list[TaughtPhoto]:
    known = _read_descriptions(root) if labels is None else _read_labels(root, labels)
    found: list[TaughtPhoto] = []
    for group in groups:
        for path in group.photos:
            place = path.relative_to(root).as_posix()
            if place not in known:
                raise DataError(
                    f"the photo {place} is to teach Stage A and has no description",
                    fix="add it to the table of descriptions",
                )
            found.append(TaughtPhoto(path, group.mission, group.group_id, known[place]))
    return found


def _read_descriptions(root: Path) -> dict[str, str]:
    return {row["photo"]: row["description"] for row in read_jsonl(root / _DESCRIPTIONS)}


def _read_labels(root: Path, labels: PhotoLabels) -> dict[str, str]:
    path = root / labels.file
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            rows = list(csv.DictReader(stream))
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read the labels of photos in {path}", got=error) from error
    if not rows:
        raise DataError(f"{path} has no rows", expected=f"photo, {labels.column}")
    missing = {"photo", labels.column} - set(rows[0])
    if missing:
        raise DataError(
            f"{path} has no column {' and no column '.join(sorted(missing))}",
            got=f"the columns {', '.join(rows[0])}",
            expected=f"photo and {labels.column} (data.photo_labels.column)",
        )
    unknown = sorted({row[labels.column] for row in rows} - set(labels.texts))
    if unknown:
        raise DataError(
            f"{path} has words that data.photo_labels.texts does not describe",
            got=", ".join(unknown),
            expected=", ".join(labels.texts),
        )
    return {row["photo"]: labels.texts[row[labels.column]] for row in rows}


def _to_row(group: PhotoGroup, root: Path) -> Mapping[str, object]:
    return {
        "key": group.key,
        "group_id": group.group_id,
        "mission": group.mission,
        "label": group.label,
        "photos": [photo.relative_to(root).as_posix() for photo in group.photos],
        "digests": [find_picture(photo).digest for photo in group.photos],
    }


def _photo_to_row(photo: TaughtPhoto, root: Path) -> Mapping[str, object]:
    return {
        "photo": photo.path.relative_to(root).as_posix(),
        "mission": photo.mission,
        "group_id": photo.group_id,
        "description": photo.description,
    }
