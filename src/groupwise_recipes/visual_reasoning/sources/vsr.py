"""Visual Spatial Reasoning: captions of COCO pictures that are true or false.

A folder has ``train.jsonl``, ``dev.jsonl`` and ``test.jsonl`` with ``{image, image_link, caption,
label: 0 or 1, relation, …}``; ``random`` and ``zeroshot`` are two ways of splitting.

Source: Liu, Emerson & Collier 2023, https://github.com/cambridgeltl/visual-spatial-reasoning.
"""

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, TypeAdapter

from groupwise.core import read_jsonl
from groupwise_recipes.visual_reasoning.rows import (
    FALSE,
    TRUE,
    LoadedRows,
    Split,
    VisualRow,
    collect_rows,
)
from groupwise_recipes.visual_reasoning.sources.records import (
    SPLIT_NAMES,
    find_picture,
    read_record,
)

_FILES = ("train", "dev", "test")


class _Record(BaseModel):
    image: str
    caption: str
    label: Literal[0, 1]
    relation: str


_SHAPE = TypeAdapter(_Record)


def load_vsr(folder: Path, *, pictures: Path | None = None) -> LoadedRows:
    """Load all three splits of VSR; a row's cluster is its picture."""
    paths: list[tuple[Path, Split]] = [
        (folder / f"{name}.jsonl", SPLIT_NAMES[name]) for name in _FILES
    ]
    records: list[tuple[str, tuple[Split, Any]]] = [
        (f"{path} row {number}", (split, value))
        for path, split in paths
        for number, value in enumerate(read_jsonl(path), start=1)
    ]

    def make(record: tuple[Split, Any]) -> VisualRow:
        split, value = record
        told = read_record(value, _SHAPE)
        return VisualRow(
            id=f"{told.image} {told.caption}",
            source=f"vsr_{folder.name}",
            split=split,
            text=told.caption,
            answers=frozenset({TRUE if told.label else FALSE}),
            cluster=told.image,
            picture=find_picture(pictures, told.image),
            relation=told.relation,
        )

    return collect_rows(records, make=make)
