"""Drawn scenes as rows: what the studies train on where no real pictures are there."""

from collections.abc import Mapping
from pathlib import Path

from groupwise.core import derive_seed
from groupwise.rewards import Box
from groupwise_drawn.relations import (
    RelationItem,
    Style,
    name_thing,
    read_relations,
    write_relations,
)
from groupwise_recipes.visual_reasoning.rows import FALSE, TRUE, Split, VisualRow
from groupwise_recipes.visual_reasoning.sources import DrawnScenes

SOURCE = "drawn"


def draw_rows(scenes: DrawnScenes, folder: Path, *, seed: int) -> Mapping[Split, list[VisualRow]]:
    """Draw the scenes into a folder and return their rows by split."""
    trained: Mapping[Split, int] = {
        "train": scenes.num_pairs,
        "validation": max(3, scenes.num_pairs // 8),
    }
    tested: Mapping[Split, int] = {"test": scenes.num_test_pairs}
    counts: list[tuple[Style, Mapping[Split, int]]] = [
        (scenes.style, trained),
        *((style, tested) for style in scenes.test_styles),
    ]
    found: dict[Split, list[VisualRow]] = {}
    for number, (style, num_pairs) in enumerate(counts):
        index = write_relations(
            folder / str(number),
            seed=derive_seed(seed, "scenes"),
            num_pairs=num_pairs,
            style=style,
            side=scenes.side,
        )
        for item in read_relations(index):
            found.setdefault(item.split, []).append(make_row(item, scenes.side))
    return found


def make_row(item: RelationItem, side: int) -> VisualRow:
    """Return the row of a drawn scene."""
    scene = item.scene
    things = (scene.subject, scene.other)
    return VisualRow(
        id=item.id,
        source=f"{SOURCE}_{item.style}",
        split=item.split,
        text=scene.write_caption("en"),
        answers=frozenset({TRUE if scene.label else FALSE}),
        cluster=item.pair,
        picture=item.picture.path,
        depth=item.depth.path,
        picture_size=(side, side),
        boxes=tuple(Box(*thing.box, thing.name("en")) for thing in things),
        relation=scene.relation,
        partner=item.partner,
        things=tuple(name_thing(thing.kind, thing.color, "en") for thing in things),
    )
