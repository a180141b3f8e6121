"""The one form of a row in all studies: a question or statement, its answers, its picture.

A source (VSR, Rel3D, drawn scenes, …) makes rows of its records by ``collect_rows``: what cannot be
used is dropped with a counted reason and a sentence, and nothing is changed on the way.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import TypeAdapter

from groupwise.core import DataError, parse_value, read_jsonl, write_jsonl
from groupwise.data.examples import DropLog
from groupwise.rewards import Box

Split = Literal["train", "validation", "test"]
TRUE, FALSE = "True", "False"
STATEMENT_CHOICES: Mapping[str, str] = {TRUE: TRUE, FALSE: FALSE}
"""The choices of a row that is a statement."""

T = TypeVar("T")


class RowError(DataError):
    """A row that cannot be used.

    Args:
        reason: one of few, so that rows can be counted by it.
        what, got, expected: as of every error, about this row.
    """

    def __init__(
        self, reason: str, what: str, *, got: object = None, expected: object = None
    ) -> None:
        super().__init__(what, got=got, expected=expected)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A reasoning that people wrote, or judged.

    Attributes:
        text: the words alone, without tags.
        answer: what it was given for; None: for the row's answers.
        aligns: whether people found that it entails that answer; None: nobody was asked.
    """

    text: str
    answer: str | None = None
    aligns: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VisualRow:
    """One item of a study.

    Attributes:
        id: unique among all rows of its source.
        source: name of the data set, such as ``vsr_zeroshot``.
        split: of the source, as published.
        text: the question, or the statement that is true or false.
        answers: keys of ``choices``, one or more: all of them together are right.
        choices: words of each choice by its key, in order: ``True`` and ``False``, or letters.
        cluster: what may never be divided between splits: rows with one picture, or drawn together.
        picture: the file; None where only text is studied.
        depth: the file of the depth picture, of the same size; None where there is none.
        picture_size: width and height of the original picture in pixels; None: not known.
        boxes: of what the text is about, in pixels of the original picture, each with the name of
            what is in it; ``()`` says that there is nothing, None that nobody told.
        relation: that a statement tells; None where there is none.
        partner: id of the other row of a contrastive pair; both are of one cluster.
        direct_answers: of people who saw no choices, raw, in the order given.
        reasonings: that people wrote or judged.
        things: what is in the boxes, in full, where the text may say less; one for each box or
            none.
    """

    id: str
    source: str
    split: Split
    text: str
    answers: frozenset[str]
    cluster: str
    choices: Mapping[str, str] = field(default_factory=lambda: dict(STATEMENT_CHOICES))
    picture: Path | None = None
    depth: Path | None = None
    picture_size: tuple[int, int] | None = None
    boxes: tuple[Box, ...] | None = None
    relation: str | None = None
    partner: str | None = None
    direct_answers: tuple[str, ...] = ()
    reasonings: tuple[Reasoning, ...] = ()
    things: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a row that contradicts itself."""
        _check_words(self)
        _check_answers(self)
        _check_boxes(self)

    @property
    def is_statement(self) -> bool:
        """Whether the row is a statement, to be answered by True or False."""
        return self.choices.keys() == STATEMENT_CHOICES.keys()

    @property
    def answer(self) -> str:
        """The answers in the order of the choices, joined by commas."""
        return ",".join(key for key in self.choices if key in self.answers)

    def to_json(self) -> dict[str, Any]:
        """Return the row as JSON values, which ``read_rows`` reads again."""
        values = asdict(self)
        paths = {name: str(path) for name in ("picture", "depth") if (path := values[name])}
        return {**values, "answers": self.answer.split(","), **paths}


@dataclass(frozen=True, slots=True)
class LoadedRows:
    """What came out of a source: ``num_records == len(rows) + drops.total``.

    Attributes:
        rows: in the order of the source.
        drops: what was not used, and why.
        num_records: that the source has.
    """

    rows: tuple[VisualRow, ...]
    drops: DropLog
    num_records: int

    @property
    def num_without_boxes(self) -> int:
        """Number of rows whose boxes nobody told: they leave what measures boxes, nothing else."""
        return sum(row.boxes is None for row in self.rows)


def collect_rows(records: Iterable[tuple[str, T]], *, make: Callable[[T], VisualRow]) -> LoadedRows:
    """Make a row of each record; drop and count what cannot be used.

    A row with the id of an earlier one is dropped, and so is half a contrastive pair.
    """
    drops, found, num_records = DropLog(), dict[str, tuple[str, VisualRow]](), 0
    for where, record in records:
        num_records += 1
        try:
            row = make(record)
        except RowError as fault:
            drops.add(fault.reason, f"{where}: {fault}")
            continue
        if row.id in found:
            drops.add(
                "repeated id", f"{where}: the id {row.id!r} stands at {found[row.id][0]}, too"
            )
        else:
            found[row.id] = (where, row)
    rows = _drop_halves(found, drops)
    if not rows:
        first = f", the first: {drops.rows[0].where}" if drops.rows else ""
        raise DataError("there is no row that can be used", got=f"{drops.counts or 'none'}{first}")
    return LoadedRows(rows, drops, num_records)


def write_rows(path: Path, rows: Iterable[VisualRow]) -> None:
    """Replace ``path`` by one row on each line."""
    write_jsonl(path, (row.to_json() for row in rows))


def read_rows(path: Path) -> list[VisualRow]:
    """Return the rows that ``write_rows`` wrote."""
    return [
        parse_value(values, _ROW, f"{path} row {number} is damaged")
        for number, values in enumerate(read_jsonl(path), start=1)
    ]


def forget_lost_partners(rows: Sequence[VisualRow]) -> list[VisualRow]:
    """Return the rows of a split; those whose partner is not among them have none."""
    known = {(row.source, row.id) for row in rows}
    return [
        row if (row.source, row.partner) in known else replace(row, partner=None) for row in rows
    ]


def make_box(sides: Sequence[float], label: str, *, size: tuple[int, int]) -> Box:
    """Return the box of ``x1, y1, x2, y2``, cut where rounding put it a pixel outside at most."""
    x1, y1, x2, y2 = sides
    width, height = size
    if min(x1, y1) < -1 or x2 > width + 1 or y2 > height + 1:
        raise RowError(
            "box outside of the picture",
            f"the box of {label!r} reaches outside of the picture",
            got=[x1, y1, x2, y2],
            expected=f"x from 0 to {width}, y from 0 to {height}",
        )
    cut = (max(x1, 0), max(y1, 0), min(x2, width), min(y2, height))
    if not (cut[0] < cut[2] and cut[1] < cut[3]):
        what = f"the box of {label!r} has no area in the picture"
        raise RowError("box without an area", what, got=[x1, y1, x2, y2])
    return Box(*cut, label)


def _check_words(row: VisualRow) -> None:
    for name in ("id", "source", "cluster", "text"):
        if not getattr(row, name).strip():
            raise RowError(f"no {name}", f"row {row.id!r} has an empty {name}")
    if row.relation is not None and not row.relation.strip():
        raise RowError("no relation", f"row {row.id!r} has an empty relation")
    if row.partner == row.id:
        raise RowError("wrong partner", f"row {row.id!r} is its own partner")


def _check_answers(row: VisualRow) -> None:
    if len(row.choices) < 2:
        raise RowError("fewer than 2 choices", f"row {row.id!r} has no choice", got=row.choices)
    if not row.answers:
        raise RowError("no answer", f"row {row.id!r} has no right answer")
    unknown = sorted(row.answers - row.choices.keys())
    if unknown:
        what = f"row {row.id!r} has an answer that is no choice"
        raise RowError("answer is no choice", what, got=unknown[0], expected=list(row.choices))
    if row.is_statement and len(row.answers) > 1:
        raise RowError("true and false", f"row {row.id!r} is both true and false")


def _check_boxes(row: VisualRow) -> None:
    if row.picture_size is not None and min(row.picture_size) < 1:
        raise RowError("no picture size", f"row {row.id!r} has no size", got=row.picture_size)
    if row.things and len(row.things) != len(row.boxes or ()):
        what = f"row {row.id!r} names other things than it has boxes"
        raise RowError("things without boxes", what, got=row.things)
    if not row.boxes:
        return
    if row.picture_size is None:
        raise RowError("no picture size", f"row {row.id!r} has boxes in a picture without a size")
    width, height = row.picture_size
    for box in row.boxes:
        if not box.label.strip():
            raise RowError("box without a name", f"row {row.id!r} has a box without a name")
        if min(box.x1, box.y1) < 0 or box.x2 > width or box.y2 > height:
            what = f"the box of {box.label!r} of row {row.id!r} is outside of the picture"
            raise RowError("box outside of the picture", what, got=box, expected=row.picture_size)


def _drop_halves(
    found: Mapping[str, tuple[str, VisualRow]], drops: DropLog
) -> tuple[VisualRow, ...]:
    """Return the rows without those whose partner is not there, or is the partner of another."""
    kept: list[VisualRow] = []
    for where, row in found.values():
        fault = _find_pair_fault(row, found)
        if fault is None:
            kept.append(row)
        else:
            drops.add("half a pair", f"{where}: {fault}")
    return tuple(kept)


def _find_pair_fault(row: VisualRow, found: Mapping[str, tuple[str, VisualRow]]) -> str | None:
    if row.partner is None:
        return None
    if row.partner not in found:
        return f"the partner {row.partner!r} of {row.id!r} is not there."
    other = found[row.partner][1]
    if other.partner != row.id:
        return f"{row.partner!r} has the partner {other.partner!r}, not {row.id!r}."
    if (other.cluster, other.split) != (row.cluster, row.split):
        return f"{row.id!r} and its partner {other.id!r} are of different clusters or splits."
    if other.answers == row.answers:
        return f"{row.id!r} and its partner {other.id!r} have the same answer."
    return None


_ROW = TypeAdapter(VisualRow)
