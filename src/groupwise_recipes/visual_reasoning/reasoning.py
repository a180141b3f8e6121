"""Writes the reasoning about a drawn scene: boxes of both things, a finding and a conclusion."""

from collections.abc import Sequence

from groupwise.rewards import Box
from groupwise_drawn.relations import INVERSES, Language, Scene, write_claim
from groupwise_recipes.visual_reasoning.boxes import Size, write_box

_CONCLUSIONS: dict[tuple[Language, bool], str] = {
    ("en", True): "So the statement is true.",
    ("en", False): "So the statement is false.",
    ("zh", True): "所以这句话是对的。",
    ("zh", False): "所以这句话是错的。",
}


def write_reasoning(scene: Scene, *, boxes: Sequence[Box], frame: Size, language: Language) -> str:
    """Return a sound reasoning, without tags.

    Args:
        scene: what is seen, and the claim.
        boxes: to begin with, in units of the frame; none: only words are written.
        frame: that the model writes boxes in.
        language: of the words.
    """
    subject, other = scene.subject.name(language), scene.other.name(language)
    relation = scene.relation if scene.label else INVERSES[scene.relation]
    finding = write_claim(subject, relation, other, language)
    places = [write_box(box, frame=frame) for box in boxes]
    return " ".join([*places, finding, _CONCLUSIONS[language, scene.label]])
