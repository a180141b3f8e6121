"""Rel3D: drawn scenes of two things in contrastive pairs: in one a relation holds, in one not.

``c_0.9_c_0.1.json`` has lists ``train``, ``valid`` and ``test`` of ``{rgb, depth, width, height,
subject: {name, bbox: {top, left, height, width}}, object: …, predicate, label}``. No key says which
two are a pair: that stands in the name of the picture, ``RELATION - THING - THING - STATE CAMERA
rgb.png``. Rows of one relation, two things and one camera are a pair if there are two of them, one
true and one false; others have no partner. All rows of a relation and its two things are a cluster.

Source: Goyal et al. 2020, https://github.com/princeton-vl/Rel3D.
"""

import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, StrictBool, TypeAdapter

from groupwise.core import DataError, read_json
from groupwise.rewards import Box
from groupwise_recipes.visual_reasoning.rows import (
    FALSE,
    TRUE,
    LoadedRows,
    RowError,
    VisualRow,
    collect_rows,
    make_box,
)
from groupwise_recipes.visual_reasoning.sources.records import (
    SPLIT_NAMES,
    find_picture,
    read_record,
    state,
)

_NAME = re.compile(r"(?P<scene>.+) - (?P<state>\S+) (?P<camera>\S+) rgb\.\w+")


class _Sides(BaseModel):
    top: float
    left: float
    height: float
    width: float


class _Thing(BaseModel):
    name: str
    bbox: _Sides


class _Record(BaseModel):
    rgb: str
    depth: str
    width: int
    height: int
    subject: _Thing
    object: _Thing
    predicate: str
    label: StrictBool


_SHAPE = TypeAdapter(_Record)


def load_rel3d(path: Path, *, pictures: Path | None = None) -> LoadedRows:
    """Load all splits of Rel3D."""
    values = read_json(path, dict)
    missing = {"train", "valid", "test"} - values.keys()
    if missing:
        raise DataError(f"{path} is not Rel3D's file", expected=f"a list {sorted(missing)[0]!r}")
    records = [
        (f"{path} {split} {number}", (split, value))
        for split in ("train", "valid", "test")
        for number, value in enumerate(values[split])
    ]
    loaded = collect_rows(records, make=lambda record: _make_row(*record, pictures))
    return replace(loaded, rows=_pair(loaded.rows))


def _make_row(split: str, value: Any, pictures: Path | None) -> VisualRow:
    told = read_record(value, _SHAPE)
    name = _last(told.rgb)
    match = _NAME.fullmatch(name)
    if match is None:
        raise RowError("picture of no scene", f"the name {name!r} tells no scene")
    size = (told.width, told.height)
    return VisualRow(
        id=name,
        source="rel3d",
        split=SPLIT_NAMES[split],
        text=state(told.subject.name, told.predicate, told.object.name),
        answers=frozenset({TRUE if told.label else FALSE}),
        cluster=match["scene"],
        picture=find_picture(pictures, name),
        depth=find_picture(pictures, _last(told.depth)),
        picture_size=size,
        boxes=(_read_box(told.subject, size), _read_box(told.object, size)),
        relation=told.predicate,
    )


def _last(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def _read_box(thing: _Thing, size: tuple[int, int]) -> Box:
    sides = thing.bbox
    corners = (sides.left, sides.top, sides.left + sides.width, sides.top + sides.height)
    return make_box(corners, thing.name.strip(), size=size)


def _pair(rows: tuple[VisualRow, ...]) -> tuple[VisualRow, ...]:
    """Return the rows with their partners."""
    groups: dict[tuple[str, str, str], list[VisualRow]] = defaultdict(list)
    for row in rows:
        groups[_find_view(row)].append(row)
    partners: dict[str, str] = {}
    for group in groups.values():
        if len(group) == 2 and group[0].answers != group[1].answers:
            first, second = group
            partners |= {first.id: second.id, second.id: first.id}
    return tuple(replace(row, partner=partners.get(row.id)) for row in rows)


def _find_view(row: VisualRow) -> tuple[str, str, str]:
    match = _NAME.fullmatch(row.id)
    return row.split, row.cluster, match["camera"] if match else ""
