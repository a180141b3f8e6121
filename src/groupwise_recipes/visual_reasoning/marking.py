"""What an answer page shows on and beside the picture: boxes, and the verdict on the reasoning."""

from collections.abc import Mapping, Sequence
from typing import Any

from groupwise.core import Example
from groupwise.evaluation.report.phrases import Phrases
from groupwise.rewards import Box, BoxParser
from groupwise_recipes.visual_reasoning.boxes import Size
from groupwise_recipes.visual_reasoning.config import TAGS
from groupwise_recipes.visual_reasoning.teaching import read_boxes

_PARSER = BoxParser(tags=TAGS, tag="think", words=True)
_SAID: Mapping[bool | None, tuple[str, str]] = {
    True: ("The reasoning entails the answer", "推理蕴含回答"),
    False: ("The reasoning does not entail the answer", "推理不蕴含回答"),
    None: ("No verdict on the reasoning", "对推理没有裁决"),
}


def mark_answer(example: Example, text: str, verdict: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the marks of an answer, as the field ``MARKS`` of predictions has them.

    Args:
        example: that is answered; without reference boxes nothing is drawn.
        text: the answer; boxes that cannot be read are left out.
        verdict: as of ``describe_verdict``; None: nothing was judged.
    """
    marks: dict[str, Any] = {}
    if example.fields.get("boxes"):
        said = [box for box in _PARSER.parse(text, example).value or () if box is not None]
        marks["reference"] = _share(read_boxes(example), example.fields["picture_size"])
        marks["answer"] = _share(said, example.fields["seen_size"])
    if verdict is not None:
        en, zh = _SAID[verdict["aligns"]]
        if why := verdict["why"]:
            en, zh = f"{en}: {why}", f"{zh}：{Phrases('zh').translate(why)}"
        marks["remark"] = {"en": en, "zh": zh}
    return marks


def _share(boxes: Sequence[Box], size: Size) -> list[list[float | str]]:
    """Return boxes in shares of a size."""
    width, height = size
    shares = [box.scale(1 / width, 1 / height) for box in boxes]
    return [[*(round(x, 4) for x in (b.x1, b.y1, b.x2, b.y2)), b.label] for b in shares]
