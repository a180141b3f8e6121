"""The audit of the photos: what a result on these splits can be trusted for.

A photo that cannot be decoded is counted here; its group fails in Stage A.
"""

from collections.abc import Sequence
from pathlib import Path

from groupwise.core import (
    DataError,
    Example,
    Message,
    Picture,
    make_example,
    open_picture,
    read_picture,
    report_places,
)
from groupwise.data import DataAudit, DropLog, audit_data, find_near_pictures
from groupwise_recipes.group_qc.config import GroupQcConfig
from groupwise_recipes.group_qc.groups import SPLITS, TEACH, read_groups, read_source
from groupwise_recipes.group_qc.photos import PhotoGroup
from groupwise_recipes.group_qc.stage_b import VERDICT_OF


def audit_photos(config: GroupQcConfig, prepared: Path) -> DataAudit:
    """Audit the groups of all splits by their photos: leakage, duplicates, balance, drops."""
    source = read_source(prepared)
    groups = read_groups(config, prepared)
    unreadable: list[str] = []
    is_drawn = config.data.root is None
    splits = {
        name: [_show(group, _list_pictures(group, unreadable, is_drawn)) for group in groups[name]]
        for name in (TEACH, *SPLITS)
        if groups[name] or name not in (TEACH, "warmup")
    }
    audit = audit_data(
        splits,
        drops=_read_drops(source["drops"]),
        num_rows=source["num_files"],
        near=find_near_pictures(splits, mirrored=config.data.mirror_invariant),
    )
    extra = [
        *report_places(
            "warning",
            "unreadable_photos",
            "{count} photos cannot be decoded; their groups will fail in Stage A.",
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
            "{count} folders gave no group.",
            [f"{row['reason']}: {row['where']}" for row in source["skipped"]["rows"]],
        ),
    ]
    return audit.add(extra)


def _list_pictures(group: PhotoGroup, unreadable: list[str], is_drawn: bool) -> list[Picture]:
    """Return the photos that can be decoded; drawn ones can, so they are not tried."""
    pictures: list[Picture] = []
    for path in group.photos:
        try:
            if not is_drawn:
                open_picture(path)
            pictures.append(read_picture(path))
        except DataError:
            unreadable.append(f"{group.key}/{path.name}")
    return pictures


def _show(group: PhotoGroup, pictures: Sequence[Picture]) -> Example:
    return make_example(
        [Message("user", group.key)],
        cluster=group.group_id,
        pictures=pictures,
        label=VERDICT_OF.get(group.label or ""),
    )


def _read_drops(values: dict) -> DropLog:
    drops = DropLog()
    for row in values["rows"]:
        drops.add(row["reason"], row["where"])
    return drops
