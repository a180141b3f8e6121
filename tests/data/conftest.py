"""Tables written for a test, loaded with the totals checked; screens and pictures."""

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from screens import draw_picture, make_screen

from groupwise.core import load_config
from groupwise.data.columns import TableSettings
from groupwise.data.tables import LoadedTable, load_table

__all__ = ["draw_picture", "make_screen"]
Rows = Sequence[Mapping[str, Any]]
SHARES = {"train": 0.5, "validation": 0.25, "test": 0.25}


def write_rows(path: Path, rows: Rows, *, encoding: str = "utf-8") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding=encoding, newline="") as stream:
        if path.suffix == ".jsonl":
            stream.writelines(json.dumps(row) + "\n" for row in rows)
        else:
            table = csv.DictWriter(stream, list(rows[0]))
            table.writeheader()
            table.writerows(rows)
    return path


def check_totals(loaded: LoadedTable) -> None:
    num_examples = {split: len(examples) for split, examples in loaded.splits.items()}
    assert loaded.num_rows == sum(num_examples.values()) + loaded.drops.total
    assert {s: sum(counts.values()) for s, counts in loaded.sources.items()} == num_examples
    ids = [example.id for examples in loaded.splits.values() for example in examples]
    assert len(set(ids)) == len(ids)
    assert set(loaded.targets) <= set(ids)


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., LoadedTable]:
    """Return a loader of settings; rows given instead of files are written as JSONL."""

    def load(rows: Rows | None = None, *, read_answer: Any = None, **settings: Any) -> LoadedTable:
        if rows is not None:
            settings["files"] = str(write_rows(tmp_path / "rows.jsonl", rows))
        given = load_config(TableSettings, {"shares": SHARES, **settings})
        loaded = load_table(given, tmp_path / "out", seed=0, read_answer=read_answer)
        check_totals(loaded)
        return loaded

    return load


@pytest.fixture
def write_table() -> Callable[..., Path]:
    return write_rows
