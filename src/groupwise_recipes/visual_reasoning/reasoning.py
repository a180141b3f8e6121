"""Writes the reasoning about a drawn scene: both things in order, a finding and a conclusion."""

from collections.abc import Sequence

from groupwise.rewards import Box
from groupwise_drawn.relations import INVERSES, Language, Relation, write_claim
from groupwise_recipes.visual_reasoning.boxes import Size, write_box

_ORDERS: dict[Language, str] = {"en": "From left to right: {}, {}.", "zh": "从左到右：{}、{}。"}
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

    Both things come from left to right, whichever the claim names first: what is where is read off
    the picture, and a place need not be looked up by a name.
    """
    holds = relation if is_true else INVERSES[relation]
    finding = write_claim(subject.label, holds, other.label, language)
    things = order_boxes([subject, other])
    if frame is None:
        if holds in ("left of", "right of"):  # be it so or not: words have nothing else to go by
            things = [subject, other] if holds == "left of" else [other, subject]
        places = _ORDERS[language].format(*(thing.label for thing in things))
    else:
        places = " ".join(write_box(thing, frame=frame) for thing in things)
    return f"{places} {finding} {_CONCLUSIONS[language, is_true]}"


def order_boxes(boxes: Sequence[Box]) -> list[Box]:
    """Return boxes from left to right, by their middles."""
    return sorted(boxes, key=lambda box: box.x1 + box.x2)
