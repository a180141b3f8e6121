"""Boxes of A-OKVQA's questions, which are of another file: COCO's instances, or an interleaved one.

COCO tells all things of a picture; the boxes of a question are those of the kinds that its words
name: the question, the right choice and the rationales. An interleaved file has DrivingVQA's form,
and tells the boxes of each question itself; it is joined by the picture's number and the question.

Sources: Lin et al. 2014, https://cocodataset.org (``instances_{train,val}2017.json``); Corbière et
al. 2025 (arXiv:2501.04671), whose boxes of A-OKVQA are detections, not annotations.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pydantic import BaseModel, TypeAdapter

from groupwise.core import DataError, parse_value, read_json
from groupwise.rewards import Box
from groupwise_recipes.visual_reasoning.sources.drivingvqa import Entity, read_entities

_NUMBER = re.compile(r"(\d+)\.\w+$")


@dataclass(frozen=True, slots=True)
class JoinedBoxes:
    """Boxes of one question, one or more, and the size of its picture in pixels."""

    boxes: tuple[Box, ...]
    size: tuple[int, int]


class BoxSource(Protocol):
    """Where the boxes of A-OKVQA's questions are found."""

    def find(self, image_id: int, question: str, words: str) -> JoinedBoxes | None:
        """Return the boxes of a question, or None if there are none."""
        ...


class _Image(BaseModel):
    id: int
    width: int
    height: int


class _Instance(BaseModel):
    image_id: int
    category_id: int
    bbox: tuple[float, float, float, float]
    iscrowd: int = 0


class _Category(BaseModel):
    id: int
    name: str


class _Instances(BaseModel):
    images: list[_Image]
    annotations: list[_Instance]
    categories: list[_Category]


class _Interleaved(BaseModel):
    questions: str | list[str]
    img_filename: str
    img_size: tuple[int, int]
    relevant_entities: list[Entity]


_INSTANCES = TypeAdapter(_Instances)
_INTERLEAVED = TypeAdapter(dict[str, _Interleaved])


class CocoBoxes:
    """COCO's instances of the kinds that a question's words name; crowds are left out.

    Args:
        path: ``instances_train2017.json`` or ``instances_val2017.json``.
    """

    def __init__(self, path: Path) -> None:
        told = parse_value(read_json(path, dict), _INSTANCES, f"{path} is not COCO's file")
        self._sizes = {image.id: (image.width, image.height) for image in told.images}
        names = {category.id: category.name for category in told.categories}
        unknown = {one.category_id for one in told.annotations} - names.keys()
        if unknown:
            raise DataError(f"{path} has boxes of no category", got=min(unknown))
        self._entities: dict[int, list[Entity]] = defaultdict(list)
        for one in told.annotations:
            if not one.iscrowd:
                self._entities[one.image_id].append({names[one.category_id]: one.bbox})

    def find(self, image_id: int, question: str, words: str) -> JoinedBoxes | None:
        """Return the boxes of a question; as in ``BoxSource``."""
        named = [one for one in self._entities.get(image_id, []) if _names(words, *one)]
        return _join(named, self._sizes.get(image_id))


class InterleavedBoxes:
    """The boxes that an interleaved file tells for each question.

    Args:
        path: of DrivingVQA's form.
    """

    def __init__(self, path: Path) -> None:
        what = f"{path} is not an interleaved file"
        told = parse_value(read_json(path, dict), _INTERLEAVED, what)
        self._entries: Mapping[tuple[int, str], _Interleaved] = {
            _find_key(path, name, entry): entry for name, entry in told.items()
        }
        if len(self._entries) < len(told):
            num_repeated = len(told) - len(self._entries)
            raise DataError(f"{path} has {num_repeated} questions of one picture twice")

    def find(self, image_id: int, question: str, words: str) -> JoinedBoxes | None:
        """Return the boxes of a question; as in ``BoxSource``."""
        entry = self._entries.get((image_id, question.strip()))
        return None if entry is None else _join(entry.relevant_entities, entry.img_size)


def _find_key(path: Path, name: str, entry: _Interleaved) -> tuple[int, str]:
    match = _NUMBER.search(entry.img_filename)
    if match is None:
        where = f"{path} {name}: the picture's name has no number of COCO"
        raise DataError(where, got=entry.img_filename)
    asked = entry.questions if isinstance(entry.questions, str) else " ".join(entry.questions)
    return int(match[1]), asked.strip()


def _names(words: str, name: str) -> bool:
    """Return whether words name a kind of thing, in the singular or with an s or es."""
    return re.search(rf"\b{re.escape(name)}(?:e?s)?\b", words, re.IGNORECASE) is not None


def _join(entities: Sequence[Entity], size: tuple[int, int] | None) -> JoinedBoxes | None:
    if not entities or size is None:
        return None
    return JoinedBoxes(read_entities(entities, size=size), size)
