"""Writes the reasoning about a drawn scene: boxes of both things, a finding and a conclusion."""

from collections.abc import Sequence

from groupwise.rewards import Box
from groupwise_drawn.relations import INVERSES, Language, Relation, write_claim
from groupwise_recipes.visual_reasoning.boxes import Size, write_box

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

    The boxes come from left to right, whichever the claim names first.

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
    places = (
        []
        if frame is None
        else [write_box(box, frame=frame) for box in order_boxes([subject, other])]
    )
    return " ".join([*places, finding, _CONCLUSIONS[language, is_true]])


def order_boxes(boxes: Sequence[Box]) -> list[Box]:
    """Return boxes from left to right, by their middles."""
    return sorted(boxes, key=lambda box: box.x1 + box.x2)
