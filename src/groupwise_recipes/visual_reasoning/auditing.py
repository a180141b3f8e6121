"""What the rewards are audited with."""

from collections.abc import Sequence
from dataclasses import replace

from groupwise.core import Example
from groupwise.inference.model import Model
from groupwise.rewards import ASKED_ONCE, BoxParser, JudgeSeat, RewardCase, RewardSet
from groupwise_recipes.visual_reasoning.answers import find_parser
from groupwise_recipes.visual_reasoning.boxes import write_box
from groupwise_recipes.visual_reasoning.config import (
    AlignmentSettings,
    RewardWeights,
    VisualConfig,
    choose_alignment,
)
from groupwise_recipes.visual_reasoning.judging import REPLIES, ModelEntailment, look_at_judge
from groupwise_recipes.visual_reasoning.measuring import make_rewards
from groupwise_recipes.visual_reasoning.teaching import place_boxes, write_answer

_BOXES = BoxParser(words=True)


def make_case(config: VisualConfig, examples: Sequence[Example]) -> RewardCase:
    """Return the rewards and what they are audited with.

    Right answers have boxes if they pay, and words if the rules that judge them do. A model that
    judges is not asked: stand-ins take its place, whatever the reasoning is.
    """
    weights = config.rewards
    found = choose_alignment(config) if weights.alignment else None
    is_ruled = found is not None and found.model is None
    targets = "boxes" if weights.box_iou else "words" if is_ruled else "answer"
    return RewardCase(
        rewards=make_rewards(weights, found and look_at_judge(found)),
        examples=[_put_on_units(one) for one in examples],
        parser=find_parser(config.data),
        write_answer=lambda example, label: write_answer(example, label, targets),
        seat=None if found is None or is_ruled else _make_seat(weights, found),
    )


def _put_on_units(example: Example) -> Example:
    """Return an example whose boxes lie on whole units of the frame that a model writes in.

    Boxes are taught in whole units. Elsewhere rounding costs the right answer a part of its IoU,
    which is no fault of the reward.
    """
    placed, frame = place_boxes(example)
    if not placed:
        return example
    written = " ".join(write_box(box, frame=frame) for box in placed)
    boxes = [[b.x1, b.y1, b.x2, b.y2, b.label] for b in _BOXES.parse(written).value]
    sizes = {"picture_size": list(frame), "seen_size": list(frame)}
    return replace(example, fields={**example.fields, **sizes, "boxes": boxes})


def _make_seat(weights: RewardWeights, settings: AlignmentSettings) -> JudgeSeat:
    once = settings.model_copy(update={"settings": ASKED_ONCE})

    def build(responder: Model) -> RewardSet:
        return make_rewards(weights, ModelEntailment(responder, once))

    return JudgeSeat(build, REPLIES)
