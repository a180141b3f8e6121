"""Rewards and measures of answers with boxes in their reasoning."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from groupwise.core import Completion, Example
from groupwise.evaluation import Measure, Prediction, RunPolicy
from groupwise.rewards import AnswerFormat, BoxIou, BoxParser, LabelMatch, Reward, RewardSet
from groupwise_recipes.visual_reasoning.asking import PARSER, write_target
from groupwise_recipes.visual_reasoning.config import TAGS, RewardWeights

BOX_IOU = "box_iou"
MEASURES = (Measure(BOX_IOU, "IoU of boxes in the reasoning", "推理中框的 IoU"),)
OTHER_SCENE = RunPolicy(
    name="other_scene",
    title="Another scene's boxes",
    title_zh="另一场景的框",
    note="boxes and answer of the scene before it, with the names of this one",
    note_zh="前一个场景的框与回答，名称换成本场景的",
    kind="baseline",
)
_IOU = BoxIou(BoxParser(tags=TAGS, tag="think", words=True, match_labels=True))


def make_rewards(weights: RewardWeights) -> RewardSet:
    """Return the rewards with their weights; a part of weight 0 is only logged."""
    parts: Mapping[str, tuple[Reward, float]] = {
        "accuracy": (LabelMatch(PARSER), weights.accuracy),
        "format": (AnswerFormat(PARSER), weights.format),
        BOX_IOU: (_IOU, weights.box_iou),
    }
    return RewardSet(parts)


def score_boxes(example: Example, text: str) -> float | None:
    """Return the IoU of the boxes in a text, 0 if it is no answer; None without references."""
    return _IOU(example, Completion(text)).value


def predict_other_scene(examples: Sequence[Example]) -> list[Prediction]:
    """Return for each scene the answer of the one before it, its boxes under this one's names.

    What it earns is what boxes earn that know the habits of the scenes and not the picture.
    """
    found: list[Prediction] = []
    for number, example in enumerate(examples):
        other = next(
            one
            for one in (*reversed(examples[:number]), *reversed(examples))
            if one.cluster != example.cluster and one.fields.get("boxes")
        )
        rows = zip(other.fields["boxes"], example.fields["boxes"], strict=True)
        boxes = [[*row[:4], own[4]] for row, own in rows]
        guess = replace(example, label=other.label, fields={**example.fields, "boxes": boxes})
        found.append(
            Prediction(
                example_id=example.id,
                cluster=example.cluster,
                split="test",
                policy=OTHER_SCENE.name,
                label=str(example.label),
                predicted=str(other.label),
                text=write_target(guess, "boxes"),
            )
        )
    return found


def complete_predictions(
    examples: Mapping[str, Example], predictions: Sequence[Prediction]
) -> list[Prediction]:
    """Return the predictions with the IoU of their boxes, and with their pairs."""
    return [_complete(one, examples[one.example_id]) for one in predictions]


def _complete(prediction: Prediction, example: Example) -> Prediction:
    iou = score_boxes(example, prediction.text) if prediction.text else None
    scores = {} if iou is None else {BOX_IOU: iou}
    shown = {
        name: example.fields[name] for name in ("relation", "source") if name in example.fields
    }
    return replace(
        prediction,
        fields={**prediction.fields, **shown},
        scores={**prediction.scores, **scores},
        pair=str(example.fields.get("pair", "")),
    )
