"""DrivingVQA: questions of French driving tests, with several right answers and relevant boxes.

``train.json`` and ``test.json`` hold ``{id: {questions, possible_answers: {A: …}, true_answers,
img_filename, img_size: [width, height], relevant_entities: [{name: [x, y, w, h]}], explanation,
has_multiple_questions, …}}``. Of two questions, A and B answer the first and the others the second.

Source: Corbière et al. 2025, https://huggingface.co/datasets/EPFL-DrivingVQA/DrivingVQA.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter

from groupwise.core import read_json
from groupwise.rewards import Box
from groupwise_recipes.visual_reasoning.rows import (
    LoadedRows,
    Reasoning,
    RowError,
    Split,
    VisualRow,
    collect_rows,
    make_box,
)
from groupwise_recipes.visual_reasoning.sources.records import find_picture, read_record

_FIRST = ("A", "B")

Entity = dict[str, tuple[float, float, float, float]]
"""The name of what is in a box, and its ``x, y, width, height`` in original pixels."""


class _Record(BaseModel):
    questions: str | list[str]
    possible_answers: dict[str, str]
    true_answers: list[str]
    img_filename: str
    img_size: tuple[int, int]
    relevant_entities: list[Entity]
    explanation: str = ""


_SHAPE = TypeAdapter(_Record)


def load_drivingvqa(path: Path, *, split: Split, pictures: Path | None = None) -> LoadedRows:
    """Load one split of DrivingVQA; a row's cluster is its picture."""
    records = [(f"{path} {name}", (name, value)) for name, value in read_json(path, dict).items()]

    def make(record: tuple[str, Any]) -> VisualRow:
        name, told = record[0], read_record(record[1], _SHAPE)
        return VisualRow(
            id=name,
            source="drivingvqa",
            split=split,
            text=_write_questions(told),
            answers=frozenset(told.true_answers),
            cluster=told.img_filename,
            choices=told.possible_answers,
            picture=find_picture(pictures, told.img_filename),
            picture_size=told.img_size,
            boxes=read_entities(told.relevant_entities, size=told.img_size),
            reasonings=(Reasoning(told.explanation),) if told.explanation.strip() else (),
        )

    return collect_rows(records, make=make)


def read_entities(entities: Sequence[Entity], *, size: tuple[int, int]) -> tuple[Box, ...]:
    """Return the boxes of ``[{name: [x, y, width, height]}]``."""
    return tuple(
        make_box((x, y, x + width, y + height), name, size=size)
        for entity in entities
        for name, (x, y, width, height) in entity.items()
    )


def _write_questions(told: _Record) -> str:
    """Return the question; of several, each with the keys of its choices, on a line of its own."""
    if isinstance(told.questions, str) or len(told.questions) == 1:
        return told.questions if isinstance(told.questions, str) else told.questions[0]
    if len(told.questions) != 2:
        raise RowError(
            "not one or two questions", "there are too many questions", got=told.questions
        )
    first = [key for key in told.possible_answers if key in _FIRST]
    second = [key for key in told.possible_answers if key not in _FIRST]
    for keys in (first, second):
        if not set(keys) & set(told.true_answers):
            what = "one of two questions has no right answer"
            raise RowError("no answer", what, got=told.true_answers, expected=f"one of {keys}")
    pairs = zip(told.questions, (first, second), strict=True)
    return "\n".join(f"{question} ({', '.join(keys)})" for question, keys in pairs)
