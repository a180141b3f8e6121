"""Reasonings about VSR's captions, each with what people said of its alignment.

A file is a list of ``{question, image_url, model_reasoning, final_ans, human_aligns: True, False or
empty, …}``; other keys, such as what a model as judge said, are not read.
"""

from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, TypeAdapter

from groupwise.core import read_json
from groupwise.data.examples import DropLog
from groupwise_recipes.visual_reasoning.rows import LoadedRows, Reasoning, RowError
from groupwise_recipes.visual_reasoning.sources.records import read_record

_Said = Literal["True", "False", ""]


class _Judged(BaseModel):
    question: str
    image_url: str
    model_reasoning: str
    final_ans: str
    human_aligns: _Said | bool | None = None


_SHAPE = TypeAdapter(_Judged)


def add_judged(loaded: LoadedRows, path: Path) -> LoadedRows:
    """Return VSR's rows with the reasonings that people judged.

    What belongs to no row, or has another form, is a record that is dropped; an empty judgement is
    a reasoning about which nobody was asked.
    """
    drops = DropLog.from_json(loaded.drops.to_json())
    found: dict[str, list[Reasoning]] = defaultdict(list)
    known = {row.id for row in loaded.rows}
    num_dropped = 0
    for number, value in enumerate(read_json(path, list)):
        try:
            row_id, reasoning = _read(value, known)
        except RowError as fault:
            drops.add(fault.reason, f"{path} {number}: {fault}")
            num_dropped += 1
        else:
            found[row_id].append(reasoning)
    rows = tuple(
        replace(row, reasonings=(*row.reasonings, *found.get(row.id, ()))) for row in loaded.rows
    )
    return LoadedRows(rows, drops, loaded.num_records + num_dropped)


def _read(value: Any, known: set[str]) -> tuple[str, Reasoning]:
    """Return a reasoning and the id of its row."""
    told = read_record(value, _SHAPE)
    row_id = f"{told.image_url.rsplit('/', 1)[-1]} {told.question}"
    if row_id not in known:
        raise RowError("reasoning of no row", f"there is no row {row_id!r}")
    said = told.human_aligns
    aligns = None if said in ("", None) else str(said) == "True"
    return row_id, Reasoning(told.model_reasoning, told.final_ans, aligns)
