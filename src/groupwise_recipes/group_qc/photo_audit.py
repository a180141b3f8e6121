"""The audit of the photos: what a result on these splits can be trusted for.

A photo that cannot be decoded is counted here; its group fails in Stage A.
"""

from pathlib import Path

from groupwise.core import (
    Example,
    Message,
    Picture,
    make_example,
    read_picture,
    report_places,
)
from groupwise.data import DataAudit, DropLog, audit_data, find_near_pictures
from groupwise_recipes.group_qc.config import GroupQcConfig
from groupwise_recipes.group_qc.groups import (
    SPLITS,
    TEACH,
    can_decode,
    has_pictures,
    read_groups,
    read_source,
)
from groupwise_recipes.group_qc.photos import PhotoGroup


def audit_photos(config: GroupQcConfig, prepared: Path) -> DataAudit:
    """Audit the groups of all splits by their photos: leakage, duplicates, balance, drops."""
    source = read_source(prepared)
    groups = read_groups(config, prepared)
    unreadable: list[str] = []
    splits = {
        name: [_show(group, unreadable, config) for group in groups[name]]
        for name in (TEACH, *SPLITS)
        if groups[name] or name not in (TEACH, "warmup")
    }
    audit = audit_data(
        splits,
        drops=DropLog.from_json(source["drops"]),
        num_rows=source["num_files"],
        near=find_near_pictures(splits, mirrored=config.data.mirror_invariant),
    )
    extra = [
        *report_places(
            "warning",
            "unreadable_photos",
            "{count} photos cannot be decoded; their photo groups will fail in Stage A.",
            unreadable,
        ),
        *report_places(
            "warning",
            "label_conflicts",
            "{count} group ids stand under pass and under fail; all are kept, apart.",
            [f"{one['mission']}: {one['group_id']}" for one in source["conflicts"]],
        ),
        *report_places(
            "info",
            "joined_groups",
            "{count} group ids share photos with another one and are on its side.",
            [f"{name} with {first}" for name, first in source["joined"]],
        ),
        *report_places(
            "warning",
            "skipped_folders",
            "{count} folders gave no photo group.",
            [f"{row['reason']}: {row['where']}" for row in source["skipped"]["rows"]],
        ),
    ]
    return audit.add(extra)


def _list_pictures(
    group: PhotoGroup, unreadable: list[str], config: GroupQcConfig
) -> list[Picture]:
    """Return the photos that can be decoded; drawn ones can, so they are not tried."""
    if not has_pictures(config.data):
        return []
    pictures: list[Picture] = []
    for path in group.photos:
        if config.data.root is None or can_decode(path):
            pictures.append(read_picture(path))
        else:
            unreadable.append(f"{group.key}/{path.name}")
    return pictures


def _show(group: PhotoGroup, unreadable: list[str], config: GroupQcConfig) -> Example:
    return make_example(
        [Message("user", group.key)],
        cluster=group.group_id,
        pictures=_list_pictures(group, unreadable, config),
        label=config.words.find_verdict(group.label),
    )
