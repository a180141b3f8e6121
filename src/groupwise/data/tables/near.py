"""Rows whose pictures look alike: joined before they are split, or dropped from what trains."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from groupwise.data.drops import DropLog
from groupwise.data.joining import drop_near, join_near_duplicates
from groupwise.data.perceptual import Sight
from groupwise.data.tables.rows import Item


def join_near(items: Sequence[Item], *, mirrored: bool) -> list[Item]:
    """Return the items with one cluster for those whose pictures look alike."""
    joined = join_near_duplicates(_list_sights(items), mirrored=mirrored)

    def join(item: Item) -> Item:
        own = item.example.cluster
        return replace(item, example=replace(item.example, cluster=joined.get(own, own)))

    return [join(item) for item in items]


def drop_near_items(
    splits: Mapping[str, list[Item]], drops: DropLog, *, mirrored: bool
) -> dict[str, list[Item]]:
    """Drop what looks like a picture of test, else of validation."""
    reason = "near duplicate of another split"
    return drop_near(
        splits,
        list_paths=lambda item: [picture.path for picture in item.example.pictures],
        report=lambda item, split: drops.add(reason, f"{item.row.where} ({split})"),
        mirrored=mirrored,
    )


def _list_sights(items: Iterable[Item]) -> list[Sight]:
    return [Sight(p.path, i.example.cluster) for i in items for p in i.example.pictures]
