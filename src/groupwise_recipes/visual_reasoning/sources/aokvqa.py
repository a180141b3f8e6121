"""A-OKVQA: questions about COCO's pictures that ask for knowledge of the world.

``aokvqa_v1p0_{train,val,test}.json`` is a list of ``{split, image_id, question_id, question,
choices: four, correct_choice_idx, direct_answers: ten, rationales, …}``; test has no answers. It
has no boxes: those are of another file, and rows of which that file has none keep ``boxes`` None.

Source: Schwenk et al. 2022, https://github.com/allenai/aokvqa.
"""

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, TypeAdapter

from groupwise.core import read_json
from groupwise_recipes.visual_reasoning.rows import (
    LoadedRows,
    Reasoning,
    RowError,
    VisualRow,
    collect_rows,
)
from groupwise_recipes.visual_reasoning.sources.joined_boxes import BoxSource
from groupwise_recipes.visual_reasoning.sources.records import (
    SPLIT_NAMES,
    find_picture,
    read_record,
)

_KEYS = ("A", "B", "C", "D")


class _Record(BaseModel):
    split: Literal["train", "val", "test"]
    image_id: int
    question_id: str
    question: str
    choices: tuple[str, str, str, str]
    correct_choice_idx: int | None = None
    direct_answers: tuple[str, ...] = ()
    rationales: tuple[str, ...] = ()


_SHAPE = TypeAdapter(_Record)


def load_aokvqa(
    path: Path, *, boxes: BoxSource | None = None, pictures: Path | None = None
) -> LoadedRows:
    """Load one file of A-OKVQA; a row's cluster is its picture."""
    records = [(f"{path} {n}", value) for n, value in enumerate(read_json(path, list))]
    return collect_rows(records, make=lambda value: _make_row(value, boxes, pictures))


def _make_row(value: Any, boxes: BoxSource | None, pictures: Path | None) -> VisualRow:
    told = read_record(value, _SHAPE)
    place = told.correct_choice_idx
    if place is None:
        raise RowError("no answer", f"the question {told.question_id} has no right choice")
    if not 0 <= place < len(_KEYS):
        raise RowError(
            "answer is no choice",
            f"the question {told.question_id} has a right choice that is not there",
            got=place,
            expected="0 to 3",
        )
    words = " ".join((told.question, told.choices[place], *told.rationales))
    joined = None if boxes is None else boxes.find(told.image_id, told.question, words)
    return VisualRow(
        id=told.question_id,
        source="aokvqa",
        split=SPLIT_NAMES[told.split],
        text=told.question,
        answers=frozenset({_KEYS[place]}),
        cluster=str(told.image_id),
        choices=dict(zip(_KEYS, told.choices, strict=True)),
        picture=find_picture(pictures, f"{told.split}2017/{told.image_id:012d}.jpg"),
        picture_size=None if joined is None else joined.size,
        boxes=None if joined is None else joined.boxes,
        direct_answers=told.direct_answers,
        reasonings=tuple(Reasoning(text) for text in told.rationales if text.strip()),
    )
