"""The audit of the photos: what a result on these splits can be trusted for.

A photo that cannot be decoded is counted here; its group fails in Stage A.
"""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from groupwise.core import DataError, Example, Finding, Message, make_example, read_picture
from groupwise.core import report_places as list_places
from groupwise.data import DataAudit, DropLog, audit_data, hash_picture
from groupwise_recipes.group_qc.config import GroupQcConfig
from groupwise_recipes.group_qc.groups import TEACH, read_groups, read_source
from groupwise_recipes.group_qc.photos import PhotoGroup
from groupwise_recipes.group_qc.stage_b import VERDICT_OF


def audit_photos(config: GroupQcConfig, prepared: Path) -> DataAudit:
    """Audit the groups of all splits by their photos: leakage, duplicates, balance, drops."""
    source = read_source(prepared)
    groups = read_groups(config, prepared)
    unreadable: list[str] = []
    splits = {
        name: [_show(group, unreadable) for group in members]
        for name, members in groups.items()
        if members or name not in (TEACH, "warmup")
    }
    audit = audit_data(splits, drops=_read_drops(source["drops"]), num_rows=source["num_files"])
    extra = [
        *list_places(
            "warning",
            "unreadable_photos",
            "{count} photos cannot be decoded; their groups will fail in Stage A.",
            unreadable,
        ),
        *list_places(
            "warning",
            "label_conflicts",
            "{count} group ids stand under pass and under fail; all are kept, apart.",
            [f"{one['mission']}: {one['group_id']}" for one in source["conflicts"]],
        ),
        *list_places(
            "warning",
            "skipped_folders",
            "{count} folders gave no group.",
            [f"{row['reason']}: {row['where']}" for row in source["skipped"]["rows"]],
        ),
    ]
    return replace(audit, findings=tuple(_sort([*audit.findings, *extra])))


def _show(group: PhotoGroup, unreadable: list[str]) -> Example:
    pictures = []
    for path in group.photos:
        try:
            hash_picture(path)
            pictures.append(read_picture(path))
        except DataError:
            unreadable.append(f"{group.key}/{path.name}")
    return make_example(
        [Message("user", group.key)],
        group=group.group_id,
        pictures=pictures,
        label=VERDICT_OF.get(group.label or ""),
    )


def _read_drops(values: dict) -> DropLog:
    drops = DropLog()
    for row in values["rows"]:
        drops.add(row["reason"], row["where"])
    return drops


def _sort(findings: Iterable[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda one: ("error", "warning", "info").index(one.level))
