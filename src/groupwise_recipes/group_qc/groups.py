"""The prepare stage: photo groups into splits, and what Stage A is taught from.

Groups that share an id (one order under several missions, an id under pass and fail) or a photo
stay in one split.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from groupwise.core import (
    DataError,
    Example,
    derive_seed,
    digest_json,
    open_picture,
    read_jsonl,
    read_picture,
    write_json,
    write_jsonl,
)
from groupwise.data.examples import DropLog
from groupwise.data.files import read_table_rows
from groupwise.data.near import Sight, drop_near, join_by_files, join_near_duplicates
from groupwise.data.splits import split_by_shares
from groupwise.run.steps import StepContext
from groupwise_drawn.cabinets import write_cabinets
from groupwise_recipes.group_qc.config import GroupData, GroupQcConfig, PhotoLabels
from groupwise_recipes.group_qc.photos import (
    LoadedGroups,
    PhotoGroup,
    digest_photos,
    find_picture,
    load_photo_groups,
)
from groupwise_recipes.group_qc.records import load_records, name_results

SPLITS = ("warmup", "train", "validation", "test")
TEACH = "teach"
GIVEN = "stage_a"
"""The folder of summaries that Stage A's files gave, in the stage's."""
_TRUE = PhotoLabels(file="descriptions.jsonl", column="description")
"""What is known of drawn photos."""


@dataclass(frozen=True, slots=True)
class TaughtPhoto:
    """A photo that teaches Stage A, by its place below the root, with its true description."""

    photo: str
    mission: str
    group_id: str
    description: str


def run_prepare(_: object, context: StepContext) -> None:
    """Find or draw the groups and split them."""
    prepare_groups(context.config, context.folder)


def prepare_groups(config: GroupQcConfig, folder: Path) -> None:
    """Write the groups with their splits, what was dropped, and what is known of Stage A."""
    data, root = config.data, find_root(config.data, folder)
    if data.root is None and not data.summaries:
        _draw(config, root)
    loaded = load_groups(config, root)
    joined, splits = split_loaded(config, loaded)
    rows = [
        _to_row(group.read_digests() if has_pictures(data) else group, root, split)
        for split, groups in splits.items()
        for group in groups
    ]
    write_jsonl(folder / "groups.jsonl", rows)
    source = {
        "num_files": loaded.num_files,
        "num_photos": loaded.num_photos,
        "num_groups": len(loaded.groups),
        "drops": loaded.drops.to_json(),
        "skipped": loaded.skipped.to_json(),
        "conflicts": loaded.conflicts,
        "joined": [f"{name} with {first}" for name, first in joined.items() if name != first],
    }
    write_json(folder / "source.json", source)
    write_jsonl(folder / "descriptions.jsonl", map(asdict, list_taught(data, splits, root)))
    for mission in {record["mission"] for record in loaded.records}:
        own = [record for record in loaded.records if record["mission"] == mission]
        write_jsonl(name_results(folder / GIVEN, mission), own)


def load_groups(config: GroupQcConfig, root: Path) -> LoadedGroups:
    """Return the photo groups of a folder, or those that files of Stage A describe."""
    data, missions = config.data, config.data.load_missions()
    if not data.summaries:
        return load_photo_groups(root, missions, data.folders)
    has_photos = has_pictures(data)
    return load_records(data.summaries, missions, config.words, root=root, has_photos=has_photos)


def split_loaded(
    config: GroupQcConfig, loaded: LoadedGroups
) -> tuple[dict[str, str], dict[str, list[PhotoGroup]]]:
    """Return the first id of those that each is joined with, and the groups by split.

    Missions and labels are about even in the splits.
    """
    data = config.data
    joined = _join(loaded.groups, data)
    kinds: dict[str, list[str]] = defaultdict(list)
    for group in loaded.groups:
        kinds[joined[group.group_id]].append(f"{group.mission}/{group.label}")
    side = split_by_shares(
        {name: "+".join(sorted(found)) for name, found in kinds.items()},
        shares=data.list_shares(),
        seed=config.seed,
    )
    splits: dict[str, list[PhotoGroup]] = {name: [] for name in (*data.list_shares(), "warmup")}
    for group in loaded.groups:
        splits[side[joined[group.group_id]]].append(group)
    if data.near_duplicates == "drop":
        splits = _drop_near(splits, loaded.drops, mirrored=data.mirror_invariant)
    return joined, splits


def digest_sources(data: GroupData) -> dict[str, str]:
    """Return the digests of what is read, by its setting: photos with their table, summaries."""
    found: dict[str, str] = {}
    if data.root is not None:
        labels = data.photo_labels
        table = None if labels is None else find_picture(data.root / labels.file).digest
        found["data.root"] = digest_json([digest_photos(data.root), table])
    if data.summaries:
        found["data.summaries"] = digest_json([find_picture(p).digest for p in data.summaries])
    return found


def find_root(data: GroupData, prepared: Path) -> Path:
    """Return the folder of the photos: the given one, or the one drawn into."""
    return prepared / "drawn" if data.root is None else data.root


def has_pictures(data: GroupData) -> bool:
    """Say whether there are photos: of groups that Stage A's files describe there may be none."""
    return data.root is not None or not data.summaries


def read_groups(config: GroupQcConfig, prepared: Path) -> dict[str, list[PhotoGroup]]:
    """Return the groups by split, those that only teach Stage A under ``teach``."""
    found: dict[str, list[PhotoGroup]] = {name: [] for name in (*SPLITS, TEACH)}
    root = find_root(config.data, prepared)
    for row in read_jsonl(prepared / "groups.jsonl"):
        photos, split = tuple(root / photo for photo in row.pop("photos")), row.pop("split")
        group = PhotoGroup(**{**row, "photos": photos, "digests": tuple(row["digests"])})
        found[split].append(group)
    return found


def read_taught(prepared: Path) -> list[TaughtPhoto]:
    """Return the photos that teach Stage A."""
    return [TaughtPhoto(**row) for row in read_jsonl(prepared / "descriptions.jsonl")]


def read_labels(data: GroupData, root: Path) -> dict[str, str] | None:
    """Return what photos show, by their places below the root; None where nobody says it."""
    if data.photo_labels is None and (data.root is not None or data.summaries):
        return None
    return _read_labels(root, data.photo_labels or _TRUE)


def show_photos(
    examples: Sequence[Example], config: GroupQcConfig, prepared: Path
) -> list[Example]:
    """Return Stage B examples with the photos of their groups, for what looks at pictures."""
    if not has_pictures(config.data):
        return list(examples)
    root = find_root(config.data, prepared)
    return [
        example.with_pictures([read_picture(root / image) for image in example.fields["images"]])
        for example in examples
    ]


def can_decode(photo: Path) -> bool:
    """Say whether a photo can be looked at; a group with one that cannot fails in Stage A."""
    try:
        open_picture(photo)
    except DataError:
        return False
    return True


def list_taught(
    data: GroupData, splits: Mapping[str, list[PhotoGroup]], root: Path
) -> list[TaughtPhoto]:
    """Return the photos that may teach Stage A: of those groups, the ones with a description."""
    known = read_labels(data, root)
    if known is None or data.summaries:
        return []
    groups = splits.get(TEACH) or [*splits["warmup"], *splits["train"]]
    places = [(group, place) for group in groups for place in group.list_images(root)]
    found = [
        TaughtPhoto(place, group.mission, group.group_id, known[place])
        for group, place in places
        if place in known
    ]
    if not found:
        raise DataError(
            "no photo that is to teach Stage A has a description",
            got=f"{len(places)} photos, such as {places[0][1]}, and {len(known)} descriptions",
            fix="name photos by their path below data.root",
        )
    return found


def _draw(config: GroupQcConfig, root: Path) -> None:
    drawn = config.data.drawn
    write_cabinets(
        root,
        num_groups=drawn.num_groups,
        seed=derive_seed(config.seed, "cabinets"),
        size=(drawn.width, drawn.height),
        variety=drawn.variety,
        language=config.language,
        folders=(config.data.pass_folder, config.data.fail_folder),
    )


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
        for path in filter(can_decode, paths)
    ]
    alike = join_near_duplicates(sights, mirrored=data.mirror_invariant)
    return {name: alike.get(first, first) for name, first in joined.items()}


def _drop_near(
    splits: Mapping[str, list[PhotoGroup]], drops: DropLog, *, mirrored: bool
) -> dict[str, list[PhotoGroup]]:
    """Drop groups with a photo that looks like one of test, else of validation, else of train."""

    def note(group: PhotoGroup, split: str) -> None:
        for path in group.photos:
            drops.add("group with a near duplicate of another split", f"{path} ({split})")

    kept = drop_near(
        splits,
        list_paths=lambda group: filter(can_decode, group.photos),
        report=note,
        mirrored=mirrored,
    )
    empty = [name for name, groups in kept.items() if splits[name] and not groups]
    if empty:
        raise DataError(
            f"all groups of the split {empty[0]} look like groups of another split",
            fix="set data.near_duplicates to join or warn",
        )
    return kept


def _read_labels(root: Path, labels: PhotoLabels) -> dict[str, str]:
    """Return the description of each photo that a table has, by its place below the root."""
    path, drops = root / labels.file, DropLog()
    rows = [row.values for row in read_table_rows(path, drops)]
    if drops.total or not rows:
        got = ", ".join(f"{one.where}: {one.reason}" for one in drops.rows[:3]) or "no rows"
        raise DataError(
            f"{path} is no table of photos", got=got, expected=f"photo, {labels.column}"
        )
    missing = {"photo", labels.column} - set(rows[0])
    if missing:
        raise DataError(
            f"{path} has no column {' and no column '.join(sorted(missing))}",
            got=f"the columns {', '.join(rows[0])}",
            expected=f"photo and {labels.column} (data.photo_labels.column)",
        )
    said = {str(row["photo"]): str(row[labels.column]).strip() for row in rows}
    if labels.texts is None:
        return {photo: text for photo, text in said.items() if text}
    unknown = sorted(set(said.values()) - set(labels.texts))
    if unknown:
        raise DataError(
            f"{path} has words that data.photo_labels.texts does not describe",
            got=", ".join(unknown),
            expected=", ".join(labels.texts),
        )
    return {photo: labels.texts[word] for photo, word in said.items()}


def _to_row(group: PhotoGroup, root: Path, split: str) -> dict[str, object]:
    """Return a group as ``read_groups`` reads it, its photos below the root."""
    return {**asdict(group), "photos": group.list_images(root), "split": split}
