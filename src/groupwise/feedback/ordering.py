"""What is learned first: confident mistakes, then recent corrections, then confirmations."""

from collections.abc import Iterable

from groupwise.feedback.items import FeedbackItem

CONFIDENT = 0.7


def order_by_priority(items: Iterable[FeedbackItem]) -> list[FeedbackItem]:
    """Return the items that people agree on, what teaches most first.

    Corrections of answers with a confidence above 0.7, the most confident first; then all other
    corrections and then confirmations, the latest first. Ties go by id, so that the order depends
    on nothing but the items.
    """
    return sorted((item for item in items if item.label is not None), key=_rank)


def _rank(item: FeedbackItem) -> tuple[int, float, float, str]:
    confidence = item.shown.confidence or 0.0
    if item.is_correction and confidence > CONFIDENT:
        return (0, -confidence, -item.at_s, item.shown.id)
    return (1 if item.is_correction else 2, 0.0, -item.at_s, item.shown.id)
