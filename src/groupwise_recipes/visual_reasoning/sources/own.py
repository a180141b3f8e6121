"""Labelled rows of a user's own: in each row of a table a picture, a text and what is right.

Columns: ``picture``, a file beside the table; ``text``; ``answers``: of a statement ``True`` or
``False``, of a question the letters of all right ones of its ``choices`` (words by letter). All
others are those of ``VisualRow`` and may be left out, such as ``relation``, ``boxes`` with
``picture_size``, ``depth`` and ``partner``. Rows with one picture are a cluster.
"""

from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from groupwise.core import DataError, digest_file, parse_value
from groupwise.data.files import Row
from groupwise.data.rows import read_asked_rows
from groupwise_recipes.visual_reasoning.rows import LoadedRows, RowError, VisualRow, collect_rows
from groupwise_recipes.visual_reasoning.sources.records import find_picture

_ROW = TypeAdapter(VisualRow)


def load_own(path: Path) -> LoadedRows:
    """Load all rows of a table (JSONL, JSON, CSV, TSV or Parquet), of the split ``test``."""
    found, drops = read_asked_rows(path, pictures=("picture",))
    loaded = collect_rows([(row.where, row) for row in found], make=_make_row)
    for drop in drops.rows:
        loaded.drops.add(drop.reason, drop.where)
    return LoadedRows(loaded.rows, loaded.drops, loaded.num_records + drops.total)


def _make_row(row: Row) -> VisualRow:
    given = {name: value for name, value in row.values.items() if value is not None}
    named = {**given, **({"picture": row.pictures[0]} if row.pictures else {})}
    for name in ("picture", "text", "answers"):
        if name not in named:
            raise RowError(f"no column {name}", f"the row has no {name}", got=sorted(named))
    folder = row.pictures[0].parent
    files: dict[str, Any] = {"picture": find_picture(folder, row.pictures[0].name)}
    if "depth" in given:
        files["depth"] = find_picture(folder, str(given["depth"]))
    answers = given["answers"]
    known = {
        "id": row.where,
        "source": f"own {given['_file']}",
        "cluster": digest_file(row.pictures[0]),
        **given,
        "split": "test",
        # JSON has true and false of its own.
        "answers": [str(one) for one in (answers if isinstance(answers, list) else [answers])],
    }
    try:
        return parse_value({**known, **files}, _ROW, "the row is not as expected")
    except RowError:
        raise
    except DataError as fault:
        raise RowError("columns of another form", str(fault)) from fault
