"""Verdicts that a judge gave before, read from a file: they are measured without any model.

Reads JudgeBench's published outputs, a plain JSONL form with any number of annotators, and the
``verdicts.jsonl`` of an earlier calibration. A row that is no such row is an error.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from groupwise.core import DataError, digest_json, read_jsonl
from groupwise.data.examples import DropLog
from groupwise.judge_calibration.rows import Order, VerdictRow, read_verdicts

_ORDERS: tuple[Order, Order] = ("ab", "ba")
_SIDES = ("a", "b", "tie")
_DECISIONS = {"A>B": "a", "B>A": "b", "A=B": "tie"}
_SWAPPED = {"a": "b", "b": "a", "tie": "tie"}
_ANSWERS = (("answer_a", "answer_b"), ("response_A", "response_B"))
_EXPECTED = "a, b, tie or null"


@dataclass(frozen=True, slots=True)
class RecordedVerdicts:
    """What a judge said of pairs, and people, too.

    Attributes:
        rows: one per pair and order; the label is what most people said.
        annotators: by pair: what each person said, None for one who was not asked. Of all pairs
            with several people, also of those that are not used because they are divided.
        drops: pairs that are not used, by reason.
    """

    rows: tuple[VerdictRow, ...]
    annotators: Mapping[str, tuple[str | None, ...]] = field(
        default_factory=dict[str, tuple[str | None, ...]]
    )
    drops: DropLog = field(default_factory=DropLog)


def read_recorded(path: Path) -> RecordedVerdicts:
    """Read recorded verdicts.

    Plain rows are ``{"id", "verdicts": {"ab": "a", "ba": "tie"}, "label": "b"}``: what the judge
    preferred when it saw a first (``ab``) and when it saw b first (``ba``), always in terms of the
    answers and not of places; ``null`` is no verdict. ``labels``, a list, takes the place of
    ``label`` where there are several annotators. ``subset``, ``cluster``, ``answer_a`` and
    ``answer_b`` may be there.

    JudgeBench's rows have ``pair_id``, ``label`` and one or two ``judgments``. The second judgment
    is of the swapped order and its decision in terms of places, so it is turned round.

    Source: ScalerLab/JudgeBench, ``utils/metrics.py``.

    Raises:
        DataError: if it cannot be read, a row is wrong or appears twice, or nothing is left.
    """
    if not path.is_file():
        raise DataError(f"there is no {path}", fix="give a JSONL file of recorded verdicts")
    table = list(read_jsonl(path))
    if table and "item_id" in table[0]:
        return RecordedVerdicts(tuple(read_verdicts(path)))
    drops, rows, annotators = DropLog(), list[VerdictRow](), dict[str, tuple[str | None, ...]]()
    seen: set[str] = set()
    for number, row in enumerate(table, start=1):
        where = f"{path} row {number}"
        pair, labels, verdicts = _read_judgebench(row, where) or _read_plain(row, where)
        if pair in seen:
            raise DataError(f"{where}: the pair {pair} appears twice")
        seen.add(pair)
        label, reason = _choose_label(labels)
        if len(labels) > 1:
            annotators[pair] = labels
        if label is None:
            drops.add(reason, where)
            continue
        rows += _make_rows(row, pair, label, verdicts)
    if not rows:
        raise DataError(f"{path} has no verdict that can be used", got=drops.counts or "none")
    return RecordedVerdicts(tuple(rows), annotators, drops)


Read = tuple[str, tuple[str | None, ...], dict[Order, str | None]]


def _read_judgebench(row: Mapping[str, Any], where: str) -> Read | None:
    if "pair_id" not in row:
        return None
    judgments: object = row.get("judgments")
    if not isinstance(judgments, list) or len(cast("list[Any]", judgments)) not in (1, 2):
        raise DataError(f"{where} has no judgments", expected="a list of one or two")
    said = [_read_decision(one, where) for one in cast("list[Any]", judgments)]
    label = _read_decision({"decision": row.get("label")}, where)
    verdicts: dict[Order, str | None] = {"ab": said[0]}
    if len(said) > 1:
        verdicts["ba"] = None if said[1] is None else _SWAPPED[said[1]]
    return str(row["pair_id"]), (label,), verdicts


def _read_decision(judgment: Any, where: str) -> str | None:
    """Return ``a``, ``b`` or ``tie`` by place; None where there is no judgment or decision."""
    decision = None if judgment is None else judgment.get("decision")
    if decision is not None and decision not in _DECISIONS:
        raise DataError(
            f"{where}: a decision is wrong", got=repr(decision), expected=", ".join(_DECISIONS)
        )
    return None if decision is None else _DECISIONS[decision]


def _read_plain(row: Mapping[str, Any], where: str) -> Read:
    if "group" in row:
        raise DataError(f"{where} has the column 'group'", fix="name it 'cluster'")
    verdicts: object = row.get("verdicts")
    labels: object = row.get("labels", [row["label"]] if "label" in row else None)
    if "id" not in row or not isinstance(verdicts, dict) or not isinstance(labels, list):
        raise DataError(
            f"{where} is no recorded verdict",
            got=f"the keys {sorted(row)}",
            expected="id, verdicts and label or labels, or JudgeBench's pair_id and judgments",
        )
    said = cast("dict[str, object]", verdicts)
    given = cast("list[object]", labels)
    if not said or not set(said) <= set(_ORDERS):
        raise DataError(f"{where}: verdicts are wrong", got=sorted(said), expected="ab and ba")
    wrong = [one for one in (*said.values(), *given) if one is not None and one not in _SIDES]
    if wrong:
        raise DataError(f"{where} has a wrong answer", got=repr(wrong[0]), expected=_EXPECTED)
    found = cast("dict[Order, str | None]", said)
    return str(row["id"]), tuple(cast("list[str | None]", given)), found


def _choose_label(labels: Sequence[str | None]) -> tuple[str | None, str]:
    """Return what most people said; None and the reason where there is no such thing."""
    counts = Counter(label for label in labels if label is not None).most_common(2)
    if not counts:
        return None, "nobody judged it"
    if len(counts) > 1 and counts[0][1] == counts[1][1]:
        return None, "people are divided"
    return counts[0][0], ""


def _make_rows(
    row: Mapping[str, Any], pair: str, label: str, verdicts: Mapping[Order, str | None]
) -> Iterator[VerdictRow]:
    texts = next(
        ([row[a], row[b]] for a, b in _ANSWERS if {a, b} <= set(row)), cast("list[str]", [])
    )
    lengths = [len(str(text)) for text in texts]
    longer = None if len(set(lengths)) < 2 else "ab"[lengths.index(max(lengths))]
    question = row.get("question")
    cluster = digest_json(question.strip()) if isinstance(question, str) else pair
    for order, verdict in verdicts.items():
        yield VerdictRow(
            item_id=pair,
            cluster=str(row.get("cluster", cluster)),
            subset=str(row.get("subset", row.get("source", ""))),
            label=label,
            verdict=verdict,
            cause="" if verdict else "not recorded",
            order=order,
            longer=cast("Any", longer),
        )
