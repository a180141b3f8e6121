"""What people decided, what a judge said of it, and the files with both.

Answers that people rated are pairs with the better one named, or single answers with a label. A
verdict row speaks of answers ``a`` and ``b`` as people saw them, whichever came first for the
judge. Rows come from asking a judge, each pair in both orders, or from a file of verdicts given
before. What cannot be compared is dropped with a counted reason; a row that is none is an error.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, cast

from groupwise.core import (
    DataError,
    EvaluationError,
    digest_json,
    read_json,
    read_jsonl,
    write_jsonl,
)
from groupwise.data.examples import DropLog
from groupwise.judges import Judge, NoVerdict, Question, judge_all

Order = Literal["ab", "ba", ""]
ReportProgress = Callable[[int, int], None]
TIE = "tie"
SIDES = ("a", "b")
_ORDERS: tuple[Order, Order] = ("ab", "ba")
_PLACES = ("first", "second")


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


@dataclass(frozen=True, slots=True)
class RatedItems:
    """The items of a source, all pairs or all single answers, and the rows that were not used."""

    items: tuple[RatedItem, ...]
    drops: DropLog

    @property
    def are_pairs(self) -> bool:
        """Whether the items are pairs."""
        return len(self.items[0].answers) == 2

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels that occur, sorted; of pairs always ``a`` and ``b``."""
        return SIDES if self.are_pairs else tuple(sorted({item.label for item in self.items}))


def load_rated(path: Path) -> RatedItems:
    """Read rated answers.

    Rows of a ``.jsonl`` file are ``{"question", "answer_a", "answer_b", "preferred": "a" | "b" |
    "tie"}`` or ``{"question", "answer", "label"}``, each with ``subset``, ``cluster`` and
    ``reference`` if wanted. Anything else is LLMBar as published: a folder of ``dataset.json``
    files, whose folders are subsets, or one of them.

    Raises:
        DataError: if it cannot be read, a row is wrong, pairs and single answers are mixed, or
            nothing is left.
    """
    if path.suffix == ".jsonl":
        rows = [(f"{path} row {n}", row) for n, row in enumerate(read_jsonl(path), start=1)]
    else:
        rows = list(_list_llmbar(path))
    drops, kept = DropLog(), dict[str, RatedItem]()
    for where, row in rows:
        item = _read_item(row, where)
        answers = [answer.strip() for answer in item.answers]
        if item.id in kept:
            drops.add("repeated", where)
        elif len(answers) == 2 and item.label == TIE:
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
    if len({len(item.answers) for item in items}) > 1:
        raise DataError(
            f"{path} mixes pairs and single answers", fix="put them into files of their own"
        )
    return RatedItems(items, drops)


def _list_llmbar(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the rows of LLMBar as those of JSONL are."""
    files = sorted(path.rglob("dataset.json")) if path.is_dir() else [path]
    if not files:
        raise DataError(f"{path} has no dataset.json", fix="give LLMBar's folder or a .jsonl file")
    needed = {"input", "output_1", "output_2", "label"}
    for file in files:
        subset = file.parent.relative_to(path).as_posix() if path.is_dir() else "."
        for number, row in enumerate(read_json(file, list)):
            where = f"{file} item {number}"
            given = cast("dict[str, Any]", row) if isinstance(row, dict) else {}
            if set(given) != needed:
                raise DataError(f"{where} is not LLMBar's", expected=f"the keys {sorted(needed)}")
            label = given["label"]
            if type(label) is not int or label not in (1, 2):
                raise DataError(f"{where}: label is wrong", got=label, expected="1 or 2")
            names = {"question": "input", "answer_a": "output_1", "answer_b": "output_2"}
            rated = {name: given[own] for name, own in names.items()}
            subset = "" if subset == "." else subset
            yield where, {**rated, "preferred": SIDES[label - 1], "subset": subset}


def _read_item(row: Mapping[str, Any], where: str) -> RatedItem:
    is_pair = "preferred" in row or "answer_a" in row
    name, names = ("preferred", ("answer_a", "answer_b")) if is_pair else ("label", ("answer",))
    needed, allowed = {"question", name, *names}, {"subset", "cluster", "reference"}
    if not needed <= set(row) <= needed | allowed:
        raise DataError(
            f"{where} is not a rated answer",
            got=f"the keys {sorted(row)}",
            expected=f"{sorted(needed)} and perhaps {sorted(allowed)}",
        )
    for one in (*names, "question"):
        if not isinstance(row[one], str):
            raise DataError(f"{where}: {one} is not a text", got=repr(row[one]))
    label: object = row[name]
    if is_pair and label not in (*SIDES, TIE):
        raise DataError(f"{where}: preferred is wrong", got=repr(label), expected="a, b or tie")
    if not isinstance(label, str | bool | int):
        raise DataError(f"{where}: label is wrong", got=repr(label), expected="a word")
    said = str(label).lower() if isinstance(label, bool) else str(label)
    question, answers = row["question"], [row[one] for one in names]
    reference = None if row.get("reference") is None else str(row["reference"])
    identity = digest_json([question, answers, said, reference])
    subset, cluster = row.get("subset", ""), row.get("cluster", digest_json(question.strip()))
    of = (str(subset), str(cluster), reference)
    return RatedItem(identity, question, tuple(answers), said, *of)


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
        return self.verdict not in (None, self.label, TIE)

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
        # A calibration of before could ask several times: the first time is 0.
        if row.pop("repeat", 0):
            raise EvaluationError(
                f"{path} row {number} is another verdict on the same question",
                fix="keep the rows with repeat 0 alone",
            )
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
        for order in _ORDERS if rated.are_pairs else ("",):
            answers = [item.answers[SIDES.index(side)] for side in order]
            seen = dict(zip(_PLACES, answers, strict=False)) or {"answer": item.answers[0]}
            askings.append((item, order, Question(texts | seen)))
    return sorted(askings, key=lambda one: -sum(map(len, one[2].texts.values())))


def check_labels(labels: Sequence[str], rated: RatedItems) -> None:
    """Refuse a judge that cannot say what people said."""
    known = {label.casefold() for label in labels}
    needed = set(_PLACES) if rated.are_pairs else {label.casefold() for label in rated.labels}
    allowed = needed | {TIE} if rated.are_pairs else known
    if not needed <= known <= allowed:
        raise EvaluationError(
            "the judge's labels are not those of the data",
            got=", ".join(labels),
            expected=", ".join(_PLACES) if rated.are_pairs else ", ".join(rated.labels),
            fix="choose a judge for pairs" if rated.are_pairs else "set the judge's labels",
        )


def ask_items(
    judge: Judge, rated: RatedItems, *, report_progress: ReportProgress | None = None
) -> list[VerdictRow]:
    """Put every item to the judge, a pair in both orders.

    Raises:
        EvaluationError: if the judge's labels are not those of the data.
        JudgeError: as the judge does.
    """
    check_labels(judge.labels, rated)
    askings = list_askings(rated)
    words = {label.casefold(): label for label in rated.labels}
    results = judge_all(judge, [asked for *_, asked in askings], report_progress=report_progress)
    rows: list[VerdictRow] = []
    for (item, order, _), result in zip(askings, results, strict=True):
        told: dict[str, Any] = {"verdict": None}
        if isinstance(result, NoVerdict):
            told["cause"] = result.cause
        else:
            said, has_orders = result.label.casefold(), result.position_bias is not None
            sides: Mapping[str, str] = dict(zip(_PLACES, order, strict=False))
            told["verdict"] = sides.get(said, TIE) if order else words.get(said, result.label)
            told["confidence"] = result.probabilities[result.label]
            told["is_option_flipped"] = result.is_flipped if has_orders else None
        told |= {"order": order, "longer": _find_longer(item.answers)}
        rows.append(VerdictRow(item.id, item.cluster, item.subset, item.label, **told))
    return rows


def _find_longer(answers: Sequence[str]) -> str | None:
    lengths = [len(answer) for answer in answers]
    return None if len(set(lengths)) < 2 else SIDES[lengths.index(max(lengths))]


@dataclass(frozen=True, slots=True)
class RecordedVerdicts:
    """What a judge said of pairs, and people, too."""

    rows: tuple[VerdictRow, ...]  # one per pair and order; the label is what most people said
    drops: DropLog = field(default_factory=DropLog)  # pairs that are not used, by reason


def read_recorded(path: Path) -> RecordedVerdicts:
    """Read verdicts that a judge gave before; ``verdicts.jsonl`` of a calibration is fine, too.

    Plain rows are ``{"id", "verdicts": {"ab": "a", "ba": "tie"}, "label": "b"}``: what the judge
    preferred when it saw a first (``ab``) and when it saw b first (``ba``), always in terms of the
    answers and not of places; ``null`` is no verdict. ``labels``, a list, takes the place of
    ``label`` where there are several annotators, and most of them decide. ``subset``, ``cluster``,
    ``answer_a`` and ``answer_b`` may be there.

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
    drops, rows, seen = DropLog(), list[VerdictRow](), set[str]()
    for number, row in enumerate(table, start=1):
        where = f"{path} row {number}"
        pair, labels, verdicts = (_read_judgebench if "pair_id" in row else _read_plain)(row, where)
        if pair in seen:
            raise DataError(f"{where}: the pair {pair} appears twice")
        seen.add(pair)
        counts = Counter(label for label in labels if label is not None).most_common(2)
        if not counts or (len(counts) > 1 and counts[0][1] == counts[1][1]):
            drops.add("people are divided" if counts else "nobody judged it", where)
            continue
        names = (("answer_a", "answer_b"), ("response_A", "response_B"))
        texts = [[str(row[a]), str(row[b])] for a, b in names if {a, b} <= set(row)]
        question = row.get("question")
        cluster = digest_json(question.strip()) if isinstance(question, str) else pair
        of: dict[str, Any] = {"item_id": pair, "cluster": str(row.get("cluster", cluster))}
        of |= {"subset": str(row.get("subset", row.get("source", ""))), "label": counts[0][0]}
        of["longer"] = _find_longer(texts[0] if texts else ())
        for order, verdict in verdicts.items():
            cause = "" if verdict else "not recorded"
            rows.append(VerdictRow(**of, verdict=verdict, cause=cause, order=order))
    if not rows:
        raise DataError(f"{path} has no verdict that can be used", got=drops.counts or "none")
    return RecordedVerdicts(tuple(rows), drops)


Read = tuple[str, Sequence[str | None], Mapping[Order, str | None]]
"""Pair, people's labels and verdicts by order."""


def _read_judgebench(row: Mapping[str, Any], where: str) -> Read:
    judgments: Any = row.get("judgments")
    if not isinstance(judgments, list) or len(cast("list[Any]", judgments)) not in (1, 2):
        raise DataError(f"{where} has no judgments", expected="a list of one or two")
    given = cast("list[Any]", judgments)
    said = (None if one is None else one.get("decision") for one in given)
    decisions: list[Any] = [row.get("label"), *said]
    sides, swapped = {"A>B": "a", "B>A": "b", "A=B": TIE}, {"A>B": "b", "B>A": "a", "A=B": TIE}
    for decision in decisions:
        if decision is not None and decision not in sides:
            known = ", ".join(sides)
            raise DataError(f"{where}: a decision is wrong", got=repr(decision), expected=known)
    verdicts: dict[Order, str | None] = {"ab": sides.get(decisions[1])}
    if len(given) > 1:
        verdicts["ba"] = swapped.get(decisions[2])
    return str(row["pair_id"]), (sides.get(decisions[0]),), verdicts


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
    given = cast("list[str | None]", labels)
    if not verdicts or not set(verdicts) <= set(_ORDERS):
        raise DataError(f"{where}: verdicts are wrong", got=sorted(verdicts), expected="ab and ba")
    for one in (*verdicts.values(), *given):
        if one is not None and one not in (*SIDES, TIE):
            expected = "a, b, tie or null"
            raise DataError(f"{where} has a wrong answer", got=repr(one), expected=expected)
    return str(row["id"]), given, verdicts
