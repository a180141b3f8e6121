"""What people say of served answers: kept, ordered by what is learned from it, and handed on.

Nobody's label is overwritten, no label is counted twice, and what people disagree on is shown and
not learned from. Needs ``groupwise[learn]``.
"""

from groupwise.feedback.exchange import (
    read_items,
    read_label_studio,
    write_items,
    write_label_studio,
)
from groupwise.feedback.items import FeedbackItem, GivenLabel, Shown, name_person
from groupwise.feedback.looks import describe_look
from groupwise.feedback.ordering import order_by_priority
from groupwise.feedback.queue import QueueOrder, order_for_people
from groupwise.feedback.sides import Sides, list_complete, name_session
from groupwise.feedback.store import FeedbackStore, Withdrawal

__all__ = [
    "FeedbackItem",
    "FeedbackStore",
    "GivenLabel",
    "QueueOrder",
    "Shown",
    "Sides",
    "Withdrawal",
    "describe_look",
    "list_complete",
    "name_person",
    "name_session",
    "order_by_priority",
    "order_for_people",
    "read_items",
    "read_label_studio",
    "write_items",
    "write_label_studio",
]
