"""Verdict rows: one per question put to a judge, the source of every number about it.

A row speaks of answers ``a`` and ``b`` as people saw them, whichever came first for the judge. Rows
come from asking a judge, each pair in both orders, or from a file of verdicts given before.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, cast

from groupwise.core import DataError, EvaluationError, digest_json, read_jsonl, write_jsonl
from groupwise.data.examples import DropLog
from groupwise.judge_calibration.rated import RatedItem, RatedItems
from groupwise.judges import Judge, NoVerdict, Question, judge_all

Order = Literal["ab", "ba", ""]
ReportProgress = Callable[[int, int], None]
_ORDERS: tuple[Order, Order] = ("ab", "ba")
_PLACES = ("first", "second")
_TIE = "tie"
_SIDES = ("a", "b", _TIE)


@dataclass(frozen=True, slots=True)
class VerdictRow:
    """What a judge said once; a row that contradicts itself is an EvaluationError."""

    item_id: str  # of the rated item
    cluster: str  # what is independent of other clusters (a question)
    subset: str  # part of the data, with ``/`` between levels
    label: str  # what people said: ``a`` or ``b`` of a pair, otherwise the answer's label
    verdict: str | None  # what the judge said, in the same words; None = no verdict
    cause: str = ""  # why there is no verdict; empty where there is one
    order: Order = ""  # how the judge saw the pair; empty for a single answer
    repeat: int = 0  # number of this asking of the same, from 0
    confidence: float | None = None  # probability of the verdict, or None where not known
    longer: Literal["a", "b"] | None = None  # of a pair; None if equally long or no pair
    # Whether the verdict changed with the order of the options that the judge chose from; None if
    # it saw one order.
    is_option_flipped: bool | None = None

    def __post_init__(self) -> None:
        where = f"the verdict on {self.item_id}"
        if (self.verdict is None) != bool(self.cause):
            raise EvaluationError(
                f"{where} contradicts itself",
                got=f"verdict {self.verdict!r} with cause {self.cause!r}",
                expected="a cause for no verdict and none for a verdict",
            )
        if self.confidence is not None and not 0 <= self.confidence <= 1:
            raise EvaluationError(
                f"{where} has a wrong confidence", got=self.confidence, expected="[0, 1] or None"
            )

    @property
    def contradicts(self) -> bool:
        """Whether the judge chose another side than people did; a tie or no verdict does not."""
        return self.verdict not in (None, self.label, _TIE)

    @property
    def agrees(self) -> bool:
        """Whether the judge said what people said."""
        return self.verdict == self.label


def write_verdicts(path: Path, rows: Iterable[VerdictRow]) -> None:
    """Replace ``path`` by one JSON row per verdict."""
    write_jsonl(path, (asdict(row) for row in rows))


def read_verdicts(path: Path) -> list[VerdictRow]:
    """Return the rows of a file."""
    known = {item.name for item in fields(VerdictRow)}
    found: list[VerdictRow] = []
    for number, row in enumerate(read_jsonl(path), start=1):
        if set(row) != known:
            raise EvaluationError(
                f"{path} row {number} is no verdict", got=sorted(row), expected=sorted(known)
            )
        found.append(VerdictRow(**row))
    return found


def list_askings(rated: RatedItems) -> list[tuple[RatedItem, Order, Question]]:
    """Return items, orders and questions, two for a pair and one for a single answer.

    The longest come first: a model in this process answers questions of like length together, and
    one that is too long for it is met at the start.
    """
    askings: list[tuple[RatedItem, Order, Question]] = []
    for item in rated.items:
        texts = {"question": item.question}
        if item.reference is not None:
            texts["reference"] = item.reference
        if not rated.are_pairs:
            askings.append((item, "", Question(texts | {"answer": item.answers[0]})))
            continue
        answers = dict(zip("ab", item.answers, strict=True))
        for order in _ORDERS:
            seen = {place: answers[side] for place, side in zip(_PLACES, order, strict=True)}
            askings.append((item, order, Question(texts | seen)))
    return sorted(askings, key=lambda one: -sum(map(len, one[2].texts.values())))


def check_labels(labels: Sequence[str], rated: RatedItems) -> None:
    """Refuse a judge that cannot say what people said."""
    known = {label.casefold() for label in labels}
    needed = set(_PLACES) if rated.are_pairs else {label.casefold() for label in rated.labels}
    allowed = needed | {_TIE} if rated.are_pairs else known
    if not needed <= known <= allowed:
        raise EvaluationError(
            "the judge's labels are not those of the data",
            got=", ".join(labels),
            expected=", ".join(_PLACES) if rated.are_pairs else ", ".join(rated.labels),
            fix="choose a judge for pairs" if rated.are_pairs else "set the judge's labels",
        )


def ask_items(
    judges: Sequence[Judge], rated: RatedItems, *, report_progress: ReportProgress | None = None
) -> list[VerdictRow]:
    """Put every item to the judges, one after the other; each is one repeat of the same judge."""
    askings = list_askings(rated)
    words = {label.casefold(): label for label in rated.labels}
    rows: list[VerdictRow] = []
    for repeat, judge in enumerate(judges):
        check_labels(judge.labels, rated)
        num_before = len(rows)

        def report(num_done: int, _: int, num_before: int = num_before) -> None:
            if report_progress is not None:
                report_progress(num_before + num_done, len(askings) * len(judges))

        results = judge_all(judge, [question for *_, question in askings], report_progress=report)
        for (item, order, _), result in zip(askings, results, strict=True):
            named: dict[str, Any] = {"verdict": None}
            if isinstance(result, NoVerdict):
                named["cause"] = result.cause
            else:
                said = result.label.casefold()
                sides: Mapping[str, str] = dict(zip(_PLACES, order, strict=False))
                named = {
                    "verdict": sides.get(said, _TIE) if order else words.get(said, result.label),
                    "confidence": result.probabilities[result.label],
                    "is_option_flipped": None
                    if result.position_bias is None
                    else result.is_flipped,
                }
            named |= {"order": order, "repeat": repeat}
            named["longer"] = _find_longer(item.answers if item.is_pair else ())
            rows.append(VerdictRow(item.id, item.cluster, item.subset, item.label, **named))
    return rows


def _find_longer(answers: Sequence[str]) -> str | None:
    lengths = [len(answer) for answer in answers]
    return None if len(set(lengths)) < 2 else "ab"[lengths.index(max(lengths))]


@dataclass(frozen=True, slots=True)
class RecordedVerdicts:
    """What a judge said of pairs, and people, too."""

    rows: tuple[VerdictRow, ...]  # one per pair and order; the label is what most people said
    # By pair: what each person said, None for one who was not asked. Of all pairs with several
    # people, also of those that are not used because they are divided.
    annotators: Mapping[str, tuple[str | None, ...]] = field(
        default_factory=dict[str, tuple[str | None, ...]]
    )
    drops: DropLog = field(default_factory=DropLog)  # pairs that are not used, by reason


def read_recorded(path: Path) -> RecordedVerdicts:
    """Read verdicts that a judge gave before; ``verdicts.jsonl`` of a calibration is fine, too.

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
        pair, labels, verdicts = (_read_judgebench if "pair_id" in row else _read_plain)(row, where)
        if pair in seen:
            raise DataError(f"{where}: the pair {pair} appears twice")
        seen.add(pair)
        if len(labels) > 1:
            annotators[pair] = labels
        counts = Counter(label for label in labels if label is not None).most_common(2)
        if not counts or (len(counts) > 1 and counts[0][1] == counts[1][1]):
            drops.add("people are divided" if counts else "nobody judged it", where)
        else:
            rows += _make_rows(row, pair, counts[0][0], verdicts)
    if not rows:
        raise DataError(f"{path} has no verdict that can be used", got=drops.counts or "none")
    return RecordedVerdicts(tuple(rows), annotators, drops)


Read = tuple[str, tuple[str | None, ...], dict[Order, str | None]]
"""Pair, people's labels and verdicts by order."""
_DECISIONS = {"A>B": "a", "B>A": "b", "A=B": _TIE}
_SWAPPED = {"a": "b", "b": "a", _TIE: _TIE, None: None}


def _read_judgebench(row: Mapping[str, Any], where: str) -> Read:
    judgments: Any = row.get("judgments")
    if not isinstance(judgments, list) or len(cast("list[Any]", judgments)) not in (1, 2):
        raise DataError(f"{where} has no judgments", expected="a list of one or two")
    decisions: list[Any] = [row.get("label")]
    for one in cast("list[Any]", judgments):
        decisions.append(None if one is None else one.get("decision"))
    for decision in decisions:
        if decision is not None and decision not in _DECISIONS:
            known = ", ".join(_DECISIONS)
            raise DataError(f"{where}: a decision is wrong", got=repr(decision), expected=known)
    label, first, *second = [None if one is None else _DECISIONS[one] for one in decisions]
    verdicts: dict[Order, str | None] = {"ab": first}
    if second:
        verdicts["ba"] = _SWAPPED[second[0]]
    return str(row["pair_id"]), (label,), verdicts


def _read_plain(row: Mapping[str, Any], where: str) -> Read:
    if "group" in row:
        raise DataError(f"{where} has the column 'group'", fix="name it 'cluster'")
    said: Any = row.get("verdicts")
    labels: Any = row.get("labels", [row["label"]] if "label" in row else None)
    if "id" not in row or not isinstance(said, dict) or not isinstance(labels, list):
        raise DataError(
            f"{where} is no recorded verdict",
            got=f"the keys {sorted(row)}",
            expected="id, verdicts and label or labels, or JudgeBench's pair_id and judgments",
        )
    verdicts = cast("dict[Order, str | None]", said)
    given = tuple(cast("list[str | None]", labels))
    if not verdicts or not set(verdicts) <= set(_ORDERS):
        raise DataError(f"{where}: verdicts are wrong", got=sorted(verdicts), expected="ab and ba")
    for one in (*verdicts.values(), *given):
        if one is not None and one not in _SIDES:
            expected = "a, b, tie or null"
            raise DataError(f"{where} has a wrong answer", got=repr(one), expected=expected)
    return str(row["id"]), given, verdicts


def _make_rows(
    row: Mapping[str, Any], pair: str, label: str, verdicts: Mapping[Order, str | None]
) -> list[VerdictRow]:
    names = (("answer_a", "answer_b"), ("response_A", "response_B"))
    known = [[str(row[a]), str(row[b])] for a, b in names if {a, b} <= set(row)]
    question = row.get("question")
    cluster = digest_json(question.strip()) if isinstance(question, str) else pair
    return [
        VerdictRow(
            item_id=pair,
            cluster=str(row.get("cluster", cluster)),
            subset=str(row.get("subset", row.get("source", ""))),
            label=label,
            verdict=verdict,
            cause="" if verdict else "not recorded",
            order=order,
            longer=cast("Any", _find_longer(known[0] if known else ())),
        )
        for order, verdict in verdicts.items()
    ]
