"""Putting rated items to a judge: every pair in both orders, each question as often as wanted."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from groupwise.core import EvaluationError
from groupwise.judge_calibration.rated import RatedItem, RatedItems
from groupwise.judge_calibration.rows import Order, VerdictRow
from groupwise.judges import Judge, NoVerdict, Question, Verdict, judge_all

ReportProgress = Callable[[int, int], None]
_ORDERS: tuple[Order, ...] = ("ab", "ba")
_PLACES = ("first", "second")
_TIE = "tie"


@dataclass(frozen=True, slots=True)
class Asking:
    """One question about one item.

    Attributes:
        item: what people rated.
        order: how the judge sees the pair; empty for a single answer.
        question: what the judge is asked.
    """

    item: RatedItem
    order: Order
    question: Question


def list_askings(rated: RatedItems) -> list[Asking]:
    """Return the questions, two for a pair and one for a single answer, the longest first.

    A model in this process answers questions of like length together, and one that is too long
    for it is met at the start.
    """
    orders = _ORDERS if rated.are_pairs else ("",)
    askings = [Asking(item, order, _ask(item, order)) for item in rated.items for order in orders]
    return sorted(askings, key=lambda one: -sum(map(len, one.question.texts.values())))


def _ask(item: RatedItem, order: Order) -> Question:
    texts = {"question": item.question}
    if item.reference is not None:
        texts["reference"] = item.reference
    if not order:
        return Question(texts | {"answer": item.answers[0]})
    answers = dict(zip("ab", item.answers, strict=True))
    return Question(
        texts | {place: answers[side] for place, side in zip(_PLACES, order, strict=True)}
    )


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
    total = len(askings) * len(judges)
    rows: list[VerdictRow] = []
    for repeat, judge in enumerate(judges):
        check_labels(judge.labels, rated)
        num_before = len(rows)

        def report(num_done: int, _: int, num_before: int = num_before) -> None:
            if report_progress is not None:
                report_progress(num_before + num_done, total)

        results = judge_all(judge, [one.question for one in askings], report_progress=report)
        rows += [
            _to_row(asking, result, repeat, rated.labels)
            for asking, result in zip(askings, results, strict=True)
        ]
    return rows


def _to_row(
    asking: Asking, result: Verdict | NoVerdict, repeat: int, labels: Sequence[str]
) -> VerdictRow:
    item = asking.item
    row = VerdictRow(
        item_id=item.id,
        cluster=item.cluster,
        subset=item.subset,
        label=item.label,
        verdict=None,
        cause=result.cause if isinstance(result, NoVerdict) else "none",
        order=asking.order,
        repeat=repeat,
        longer=_find_longer(item),
    )
    if isinstance(result, NoVerdict):
        return row
    return replace(
        row,
        verdict=_translate(result.label, asking, labels),
        cause="",
        confidence=result.probabilities[result.label],
        is_option_flipped=None if result.position_bias is None else result.is_flipped,
    )


def _translate(label: str, asking: Asking, labels: Sequence[str]) -> str:
    """Return the judge's label in people's words."""
    if asking.order:
        sides: dict[str, str] = dict(zip(_PLACES, asking.order, strict=True))
        return sides.get(label.casefold(), _TIE)
    return {known.casefold(): known for known in labels}.get(label.casefold(), label)


def _find_longer(item: RatedItem) -> Literal["a", "b"] | None:
    if not item.is_pair or len(item.answers[0]) == len(item.answers[1]):
        return None
    return "a" if len(item.answers[0]) > len(item.answers[1]) else "b"
