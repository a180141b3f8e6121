"""SpatialSense: relations in photos that people made up so that a model gets them wrong.

``annotations.json`` is a list of pictures ``{url, width, height, split: train, valid or test,
annotations: [{_id, predicate, subject: {name, bbox}, object: {name, bbox}, label}]}``. Its boxes
are ``[y0, y1, x0, x1]``; they are turned here, and nowhere else. One picture has several
annotations, so that only the published split keeps pictures apart.

Source: Yang, Russakovsky & Deng 2019, https://github.com/princeton-vl/SpatialSense.
"""

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, StrictBool, TypeAdapter

from groupwise.core import read_json
from groupwise.rewards import Box
from groupwise_recipes.visual_reasoning.rows import (
    FALSE,
    TRUE,
    LoadedRows,
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


class _Thing(BaseModel):
    name: str
    bbox: tuple[float, float, float, float]


class _Relation(BaseModel):
    id: str = Field(alias="_id")
    predicate: str
    subject: _Thing
    object: _Thing
    label: StrictBool


class _Picture(BaseModel):
    url: str
    width: int
    height: int
    split: Literal["train", "valid", "test"]


_PICTURE = TypeAdapter(_Picture)
_RELATION = TypeAdapter(_Relation)


def load_spatialsense(path: Path, *, pictures: Path | None = None) -> LoadedRows:
    """Load all splits of SpatialSense; a row's cluster is its picture."""
    records = [
        (f"{path} picture {number} relation {place}", (picture, relation))
        for number, picture in enumerate(read_json(path, list))
        for place, relation in enumerate(_list_relations(picture))
    ]
    return collect_rows(records, make=lambda record: _make_row(*record, pictures))


def _list_relations(picture: Any) -> list[Any]:
    """Return the annotations of a picture; one record without a form if it has none."""
    told = picture.get("annotations") if isinstance(picture, dict) else None
    return told if isinstance(told, list) else [None]


def _make_row(picture: Any, relation: Any, pictures: Path | None) -> VisualRow:
    shown, told = read_record(picture, _PICTURE), read_record(relation, _RELATION)
    size = (shown.width, shown.height)
    return VisualRow(
        id=told.id,
        source="spatialsense",
        split=SPLIT_NAMES[shown.split],
        text=state(told.subject.name, told.predicate, told.object.name),
        answers=frozenset({TRUE if told.label else FALSE}),
        cluster=shown.url,
        picture=find_picture(pictures, _name_picture(shown.url)),
        picture_size=size,
        boxes=(_turn_box(told.subject, size), _turn_box(told.object, size)),
        relation=told.predicate,
    )


def _turn_box(thing: _Thing, size: tuple[int, int]) -> Box:
    y0, y1, x0, x1 = thing.bbox
    return make_box((x0, y0, x1, y1), thing.name, size=size)


def _name_picture(url: str) -> str:
    """Return the file of a picture: of Flickr it has an address, of NYU a path."""
    folder = "flickr" if url.startswith("http") else "nyu"
    return f"{folder}/{url.rsplit('/', 1)[-1]}"
