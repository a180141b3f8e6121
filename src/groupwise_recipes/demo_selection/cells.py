"""Files of an evaluation: a cell for each system, epoch and number of shots, and what they share.

A cell has a row for each test item that was asked. It is the reader's part to say ``?`` where a
cell has not run or lacks an item of the subset that is looked at: ``take_subset`` tells.
"""

import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from pydantic import ConfigDict, Field, TypeAdapter, with_config

from groupwise.core import (
    ConfigError,
    DataError,
    derive_seed,
    parse_value,
    read_json,
    read_jsonl,
    write_json,
    write_jsonl,
)

FOLDER = "cells"
FACTS = "cells.json"
_NAME = re.compile(r"(?P<system>[a-z]\w*)(-epoch-(?P<epoch>\d+))?-shots-(?P<shots>\d+)")
_exact = with_config(ConfigDict(extra="forbid"))


@dataclass(frozen=True, slots=True)
class Cell:
    """What one file of answers is of.

    Attributes:
        system: what chose the lists: a baseline (``none``, ``random``, ``nearest_text``, …) or a
            training (``rce``, ``grpo``); with ``_reversed`` its lists were turned round.
        shots: demonstrations of each list; 0 of ``none``.
        epoch: of the training, from 1; baselines have none.
    """

    system: str
    shots: int
    epoch: int | None = None

    @property
    def name(self) -> str:
        """``<system>[-epoch-<N>]-shots-<S>``, of the file without its suffix."""
        epoch = "" if self.epoch is None else f"-epoch-{self.epoch}"
        return f"{self.system}{epoch}-shots-{self.shots}"


@_exact
@dataclass(frozen=True, slots=True)
class CellRow:
    """What came of one test item.

    Attributes:
        id: of the test item.
        cluster: of the test item.
        demos: train items in the order of the prompt.
        answer: what was said; None: the evaluation failed.
        accuracy: VQA accuracy of the answer, in [0, 1]; None: the evaluation failed.
    """

    id: str
    cluster: str
    demos: tuple[str, ...]
    answer: str | None
    accuracy: Annotated[float, Field(ge=0, le=1)] | None


@_exact
@dataclass(frozen=True, slots=True)
class Base:
    """The checkpoint that a training began with.

    Attributes:
        name: such as ``RCE epoch 5``.
        digest: of its weights.
    """

    name: str
    digest: str


@_exact
@dataclass(frozen=True, slots=True)
class EvaluationFacts:
    """What the cells of a run share, in ``cells.json``.

    Attributes:
        conditions: by the names of ``COMPARED``; ``data`` is the digest of the recording that the
            selectors were trained on, ``items`` that of the test items.
        base: that GRPO began with, if there is GRPO.
        trained_shots: length of the recorded lists.
        planned_epochs: by training, ``rce`` and ``grpo``.
    """

    conditions: dict[str, str | None]
    base: Base | None
    trained_shots: int
    planned_epochs: dict[str, int]


@_exact
@dataclass(frozen=True, slots=True)
class Subsets:
    """Named parts of the test items, in ``subsets.json``.

    Attributes:
        nested: whether each smaller one is part of each larger one.
        seed: that they were drawn by.
        subsets: ids by name, in the order of the test split; the name is the number of items.
    """

    nested: bool
    seed: int
    subsets: dict[str, tuple[str, ...]]

    @property
    def largest(self) -> tuple[str, ...]:
        """Ids of the largest one."""
        return max(self.subsets.values(), key=len)


_ROWS = TypeAdapter(CellRow)
_FACTS = TypeAdapter(EvaluationFacts)
_SUBSETS = TypeAdapter(Subsets)


def parse_cell(name: str) -> Cell:
    """Return the cell of a name."""
    found = _NAME.fullmatch(name)
    if found is None:
        raise DataError(f"{name!r} is no cell's name", expected="<system>[-epoch-<N>]-shots-<S>")
    epoch = found["epoch"]
    return Cell(found["system"], int(found["shots"]), None if epoch is None else int(epoch))


def list_cells(evaluation: Path) -> list[Cell]:
    """Return the cells that an evaluation's folder has, sorted by name."""
    paths = sorted((evaluation / FOLDER).glob("*.jsonl"))
    return [parse_cell(path.stem) for path in paths]


def write_cell(evaluation: Path, cell: Cell, rows: Iterable[CellRow]) -> Path:
    """Replace the file of a cell and return it."""
    path = evaluation / FOLDER / f"{cell.name}.jsonl"
    write_jsonl(path, map(asdict, rows))
    return path


def read_cell(evaluation: Path, cell: Cell) -> tuple[CellRow, ...]:
    """Return the rows of a cell, none where it has not run."""
    path = evaluation / FOLDER / f"{cell.name}.jsonl"
    if not path.exists():
        return ()
    rows = tuple(
        parse_value(row, _ROWS, f"{path} row {number} is not as expected")
        for number, row in enumerate(read_jsonl(path), start=1)
    )
    if len({row.id for row in rows}) < len(rows):
        raise DataError(f"{path} has an item twice", fix="evaluate the cell again")
    return rows


def take_subset(rows: Iterable[CellRow], ids: Sequence[str]) -> tuple[CellRow, ...] | None:
    """Return the rows of some items, in their order; None (``?``) if one is missing."""
    by_id = {row.id: row for row in rows}
    if not ids or not by_id.keys() >= set(ids):
        return None
    return tuple(by_id[one] for one in ids)


def write_facts(evaluation: Path, facts: EvaluationFacts) -> None:
    """Replace ``cells.json``."""
    write_json(evaluation / FACTS, asdict(facts))


def read_facts(evaluation: Path) -> EvaluationFacts:
    """Return what ``cells.json`` says."""
    path = evaluation / FACTS
    return parse_value(read_json(path, dict), _FACTS, f"{path} is not as expected")


def write_subsets(evaluation: Path, subsets: Subsets) -> None:
    """Replace ``subsets.json``."""
    write_json(evaluation / "subsets.json", asdict(subsets))


def read_subsets(evaluation: Path) -> Subsets:
    """Return what ``subsets.json`` says."""
    path = evaluation / "subsets.json"
    return parse_value(read_json(path, dict), _SUBSETS, f"{path} is not as expected")


def draw_subsets(ids: Sequence[str], sizes: Iterable[int], *, seed: int) -> Subsets:
    """Draw nested subsets of the test items, each named by its size."""
    wanted = sorted(set(sizes))
    if not wanted or wanted[0] < 1 or wanted[-1] > len(ids):
        raise ConfigError(
            "test subsets cannot be drawn", got=wanted, expected=f"sizes from 1 to {len(ids)}"
        )
    order = random.Random(derive_seed(seed, "test subsets")).sample(range(len(ids)), len(ids))
    drawn = {str(size): tuple(ids[at] for at in sorted(order[:size])) for size in wanted}
    return Subsets(True, seed, drawn)
