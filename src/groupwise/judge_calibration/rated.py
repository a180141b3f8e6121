"""Answers that people rated: pairs with the better one named, or single answers with a label.

Reads LLMBar as published (a folder of ``dataset.json`` files, or one of them) and JSONL. What
cannot be compared is dropped with a counted reason; a row that is no such row is an error.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from groupwise.core import DataError, digest_json, read_json, read_jsonl
from groupwise.data.examples import DropLog

RatedFormat = Literal["llmbar", "jsonl"]
_PAIR_KEYS = {"question", "answer_a", "answer_b", "preferred"}
_ANSWER_KEYS = {"question", "answer", "label"}
_EXTRA_KEYS = {"subset", "cluster", "reference"}
_LLMBAR_KEYS = {"input", "output_1", "output_2", "label"}
_SIDES = {1: "a", 2: "b"}


@dataclass(frozen=True, slots=True)
class RatedItem:
    """What people said about one answer, or about two to the same question.

    Attributes:
        id: digest of question, answers and label.
        question: what was asked.
        answers: two answers of a pair (a, b), or the one that has a label.
        label: of a pair ``a`` or ``b``, the better answer; otherwise the answer's label.
        subset: part of the data with ``/`` between levels (``Adversarial/Manual``), or "".
        cluster: items of one cluster are not independent; by default items of one question.
        reference: a right answer to compare with, or None.
    """

    id: str
    question: str
    answers: tuple[str, ...]
    label: str
    subset: str
    cluster: str
    reference: str | None = None

    @property
    def is_pair(self) -> bool:
        """Whether people compared two answers."""
        return len(self.answers) == 2


@dataclass(frozen=True, slots=True)
class RatedItems:
    """The items of a source, all pairs or all single answers, and the rows that were not used."""

    items: tuple[RatedItem, ...]
    drops: DropLog

    @property
    def are_pairs(self) -> bool:
        """Whether the items are pairs."""
        return self.items[0].is_pair

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels that occur, sorted; of pairs always ``a`` and ``b``."""
        return ("a", "b") if self.are_pairs else tuple(sorted({i.label for i in self.items}))


def load_rated(path: Path, *, source_format: RatedFormat | None = None) -> RatedItems:
    """Read rated answers.

    JSONL rows are ``{"question", "answer_a", "answer_b", "preferred": "a" | "b" | "tie"}`` or
    ``{"question", "answer", "label"}``, each with ``subset``, ``cluster`` and ``reference`` if
    wanted. LLMBar's subsets are its folders.

    Args:
        path: a file or folder.
        source_format: None: JSONL for a ``.jsonl`` file, else LLMBar.

    Raises:
        DataError: if it cannot be read, a row is wrong, pairs and single answers are mixed, or
            nothing is left.
    """
    form = source_format or ("jsonl" if path.suffix == ".jsonl" else "llmbar")
    drops, kept = DropLog(), dict[str, RatedItem]()
    for where, item in _read_llmbar(path) if form == "llmbar" else _read_rows(path):
        texts = [answer.strip() for answer in item.answers]
        if item.id in kept:
            drops.add("repeated", where)
        elif item.is_pair and item.label == "tie":
            drops.add("people saw no difference", where)
        elif not all(texts):
            drops.add("empty answer", where)
        elif item.is_pair and texts[0] == texts[1]:
            drops.add("both answers are the same", where)
        else:
            kept[item.id] = item
    items = tuple(kept.values())
    if not items:
        raise DataError(f"{path} has no rated answer that can be used", got=drops.counts or "none")
    if len({item.is_pair for item in items}) > 1:
        raise DataError(
            f"{path} mixes pairs and single answers", fix="put them into files of their own"
        )
    return RatedItems(items, drops)


def find_rated(name: str) -> Path:
    """Return the path called ``name``, or the data set of that name in ``GROUPWISE_DATA``.

    Raises:
        DataError: if there is neither.
    """
    path = Path(name)
    shared = os.environ.get("GROUPWISE_DATA")
    if path.exists():
        return path
    if shared and (Path(shared) / name).exists():
        return Path(shared) / name
    raise DataError(
        f"there is no {name}",
        fix="give a file or folder, or set GROUPWISE_DATA to the folder that the data set is in",
    )


def _read_rows(path: Path) -> Iterator[tuple[str, RatedItem]]:
    for number, row in enumerate(read_jsonl(path), start=1):
        where = f"{path} row {number}"
        is_pair = "preferred" in row or "answer_a" in row
        _check_keys(row, _PAIR_KEYS if is_pair else _ANSWER_KEYS, where, _EXTRA_KEYS)
        label: object = row["preferred" if is_pair else "label"]
        if is_pair and label not in ("a", "b", "tie"):
            raise DataError(f"{where}: preferred is wrong", got=repr(label), expected="a, b or tie")
        if not isinstance(label, str | bool | int):
            raise DataError(f"{where}: label is wrong", got=repr(label), expected="a word")
        text = str(label).lower() if isinstance(label, bool) else str(label)
        names = ("question", "answer_a", "answer_b") if is_pair else ("question", "answer")
        yield where, _make_item(row, names, text, where, row)


def _read_llmbar(path: Path) -> Iterator[tuple[str, RatedItem]]:
    files = sorted(path.rglob("dataset.json")) if path.is_dir() else [path]
    if not files:
        raise DataError(f"{path} has no dataset.json", fix="give LLMBar's folder or a .jsonl file")
    for file in files:
        subset = file.parent.relative_to(path).as_posix() if path.is_dir() else "."
        rows = read_json(file, list)
        if not all(isinstance(row, dict) for row in rows):
            raise DataError(f"{file} is not LLMBar's file", expected="a list of objects")
        for number, row in enumerate(cast("list[dict[str, Any]]", rows)):
            where = f"{file} item {number}"
            _check_keys(row, _LLMBAR_KEYS, where)
            side = _SIDES.get(row["label"]) if type(row["label"]) is int else None
            if side is None:
                raise DataError(f"{where}: label is wrong", got=row["label"], expected="1 or 2")
            extra = {"subset": "" if subset == "." else subset}
            yield where, _make_item(row, ("input", "output_1", "output_2"), side, where, extra)


def _check_keys(
    row: Mapping[str, Any], needed: set[str], where: str, allowed: set[str] | None = None
) -> None:
    if not needed <= set(row) <= needed | (allowed or set()):
        raise DataError(
            f"{where} is not a rated answer",
            got=f"the keys {sorted(row)}",
            expected=f"{sorted(needed)}" + (f" and perhaps {sorted(allowed)}" if allowed else ""),
        )


def _make_item(
    row: Mapping[str, Any],
    names: Sequence[str],
    label: str,
    where: str,
    extra: Mapping[str, Any],
) -> RatedItem:
    """Return the item of a row: the first of the named columns asks, the others answer."""
    for name in (*names[1:], names[0]):
        if not isinstance(row[name], str):
            raise DataError(f"{where}: {name} is not a text", got=repr(row[name]))
    question, *answers = (row[name] for name in names)
    reference = None if extra.get("reference") is None else str(extra["reference"])
    return RatedItem(
        id=digest_json([question, answers, label, reference]),
        question=question,
        answers=tuple(answers),
        label=label,
        subset=str(extra.get("subset", "")),
        cluster=str(extra.get("cluster", digest_json(question.strip()))),
        reference=reference,
    )
