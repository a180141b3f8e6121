"""Writes the reasoning about a drawn scene: both things in order, a finding and a conclusion."""

from typing import Literal

from groupwise.rewards import Box
from groupwise_drawn.relations import INVERSES, Language, Relation, write_claim
from groupwise_recipes.visual_reasoning.boxes import Size, write_box

Order = Literal["left", "top", "front"]
"""What things are told by: from left to right, from top to bottom or from front to back."""

_ORDERS: dict[Relation, Order] = {
    "left of": "left",
    "right of": "left",
    "above": "top",
    "below": "top",
    "in front of": "front",
    "behind": "front",
}
_FIRST: tuple[Relation, ...] = ("left of", "above", "in front of")
_LEADS: dict[tuple[Language, Order], str] = {
    ("en", "left"): "From left to right: {}, {}.",
    ("en", "top"): "From top to bottom: {}, {}.",
    ("en", "front"): "From front to back: {}, {}.",
    ("zh", "left"): "从左到右：{}、{}。",
    ("zh", "top"): "从上到下：{}、{}。",
    ("zh", "front"): "从前到后：{}、{}。",
}
_CONCLUSIONS: dict[tuple[Language, bool], str] = {
    ("en", True): "So the statement is true.",
    ("en", False): "So the statement is false.",
    ("zh", True): "所以这句话是对的。",
    ("zh", False): "所以这句话是错的。",
}


def write_reasoning(
    subject: Box,
    relation: Relation,
    other: Box,
    *,
    is_true: bool,
    frame: Size | None,
    language: Language,
) -> str:
    """Return a sound reasoning, without tags.

    Both things come in the order that the claim is about, whichever it names first: what it claims
    can be read off them.

    Args:
        subject: of the claim, with its name as label, in units of the frame.
        relation: that is claimed.
        other: the other thing of the claim, likewise.
        is_true: whether the claim holds.
        frame: that the model writes boxes in; None: only words are written.
        language: of the words.
    """
    holds = relation if is_true else INVERSES[relation]
    finding = write_claim(subject.label, holds, other.label, language)
    things = order_things(subject, holds, other)
    if frame is None:
        names = (thing.label for thing in things)
        places = _LEADS[language, _ORDERS[relation]].format(*names)
    else:
        places = " ".join(write_box(box, frame=frame) for box in things)
    return f"{places} {finding} {_CONCLUSIONS[language, is_true]}"


def order_things(subject: Box, holds: Relation, other: Box) -> tuple[Box, Box]:
    """Return both things of a relation that holds: the left, upper or nearer one first."""
    return (subject, other) if holds in _FIRST else (other, subject)


def list_orders(subject: Box, holds: Relation, other: Box) -> dict[Order, tuple[Box, Box]]:
    """Return both things in each order that is known of them.

    Which is in front is known where the relation that holds tells it.

    Args:
        subject: of the relation.
        holds: the relation, which has to hold.
        other: the other thing.
    """
    is_left = subject.x1 + subject.x2 < other.x1 + other.x2
    is_top = subject.y1 + subject.y2 < other.y1 + other.y2
    found: dict[Order, tuple[Box, Box]] = {
        "left": order_things(subject, "left of" if is_left else "right of", other),
        "top": order_things(subject, "above" if is_top else "below", other),
    }
    found[_ORDERS[holds]] = order_things(subject, holds, other)
    return found
