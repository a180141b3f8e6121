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
_EXTRA_KEYS = {"subset", "cluster", "reference"}
_PAIR_NAMES, _LLMBAR_NAMES = ("answer_a", "answer_b"), ("output_1", "output_2")


@dataclass(frozen=True, slots=True)
class RatedItem:
    """What people said about one answer, or about two to the same question."""

    id: str  # digest of question, answers and label
    question: str  # what was asked
    answers: tuple[str, ...]  # two answers of a pair (a, b), or the one that has a label
    label: str  # of a pair ``a`` or ``b``, the better answer; otherwise the answer's label
    subset: str  # part of the data with ``/`` between levels (``Adversarial/Manual``), or ""
    cluster: str  # its items are not independent; by default items of one question
    reference: str | None = None  # a right answer to compare with, or None

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
        answers = [answer.strip() for answer in item.answers]
        if item.id in kept:
            drops.add("repeated", where)
        elif item.is_pair and item.label == "tie":
            drops.add("people saw no difference", where)
        elif not all(answers):
            drops.add("empty answer", where)
        elif len(set(answers)) < len(answers):
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
    shared = os.environ.get("GROUPWISE_DATA")
    for path in [Path(name), *([Path(shared) / name] if shared else ())]:
        if path.exists():
            return path
    raise DataError(
        f"there is no {name}",
        fix="give a file or folder, or set GROUPWISE_DATA to the folder that the data set is in",
    )


def _read_rows(path: Path) -> Iterator[tuple[str, RatedItem]]:
    for number, row in enumerate(read_jsonl(path), start=1):
        where = f"{path} row {number}"
        is_pair = "preferred" in row or "answer_a" in row
        name, answers = ("preferred", _PAIR_NAMES) if is_pair else ("label", ("answer",))
        question, texts = _read_texts(row, "question", answers, name, where, _EXTRA_KEYS)
        label: object = row[name]
        if is_pair and label not in ("a", "b", "tie"):
            raise DataError(f"{where}: preferred is wrong", got=repr(label), expected="a, b or tie")
        if not isinstance(label, str | bool | int):
            raise DataError(f"{where}: label is wrong", got=repr(label), expected="a word")
        said = str(label).lower() if isinstance(label, bool) else str(label)
        yield where, _make_item(question, texts, said, row)


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
            question, texts = _read_texts(row, "input", _LLMBAR_NAMES, "label", where, set())
            label = row["label"]
            if type(label) is not int or label not in (1, 2):
                raise DataError(f"{where}: label is wrong", got=label, expected="1 or 2")
            extra = {"subset": "" if subset == "." else subset}
            yield where, _make_item(question, texts, "ab"[label - 1], extra)


def _read_texts(
    row: Mapping[str, Any],
    question: str,
    answers: Sequence[str],
    label: str,
    where: str,
    allowed: set[str],
) -> tuple[str, list[str]]:
    """Return the question and the answers of a row that has the keys of its form."""
    needed = {question, label, *answers}
    if not needed <= set(row) <= needed | allowed:
        raise DataError(
            f"{where} is not a rated answer",
            got=f"the keys {sorted(row)}",
            expected=f"{sorted(needed)}" + (f" and perhaps {sorted(allowed)}" if allowed else ""),
        )
    for name in (*answers, question):
        if not isinstance(row[name], str):
            raise DataError(f"{where}: {name} is not a text", got=repr(row[name]))
    return row[question], [row[name] for name in answers]


def _make_item(
    question: str, answers: list[str], label: str, extra: Mapping[str, Any]
) -> RatedItem:
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
