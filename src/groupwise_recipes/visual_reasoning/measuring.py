"""Rewards and measures of answers with boxes in their reasoning."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from groupwise.core import Completion, Example, Score
from groupwise.evaluation import Measure, Prediction, RunPolicy
from groupwise.rewards import (
    AnswerFormat,
    BoxIou,
    BoxParser,
    LabelMatch,
    Reward,
    RewardKind,
    RewardSet,
)
from groupwise_recipes.visual_reasoning.asking import PARSER, write_target
from groupwise_recipes.visual_reasoning.claims import read_claim
from groupwise_recipes.visual_reasoning.config import TAGS, RewardWeights
from groupwise_recipes.visual_reasoning.entailment import judge_entailment
from groupwise_recipes.visual_reasoning.rows import TRUE

BOX_IOU, ALIGNMENT = "box_iou", "alignment"
MEASURES = (
    Measure(BOX_IOU, "IoU of boxes in the reasoning", "推理中框的 IoU"),
    Measure(ALIGNMENT, "Reasoning entails the answer", "推理蕴含回答"),
)
OTHER_SCENE = RunPolicy(
    name="other_scene",
    title="Another scene's boxes",
    title_zh="另一场景的框",
    note="boxes and answer of the scene before it, with the names of this one",
    note_zh="前一个场景的框与回答，名称换成本场景的",
    kind="baseline",
)
_IOU = BoxIou(BoxParser(tags=TAGS, tag="think", words=True, match_labels=True))


class Alignment:
    """1 where the reasoning entails the answer that is given, right or wrong, by the rule judge.

    A text that is no answer is invalid; without a verdict there is no score, and a statement that
    claims no relation of two things is not judged.
    """

    name = ALIGNMENT
    kind: RewardKind = "other"
    runs_beside_scoring = True

    def __call__(self, example: Example, completion: Completion) -> Score:
        """Return the score of one answer."""
        found = PARSER.parse(completion.text)
        if found.label is None:
            return Score(0.0, found.reason, invalid=True)
        statement = str(example.fields["statement"])
        if read_claim(statement) is None:
            return Score(None, "no relation of two things is claimed")
        reasoning = completion.text.partition("<think>")[2].partition("</think>")[0]
        verdict = judge_entailment(statement, reasoning, answer=found.label == TRUE)
        return Score(None if verdict.aligns is None else float(verdict.aligns), verdict.why)


_ALIGNMENT = Alignment()


def make_rewards(weights: RewardWeights) -> RewardSet:
    """Return the rewards with their weights; a part of weight 0 is only logged."""
    parts: Mapping[str, tuple[Reward, float]] = {
        "accuracy": (LabelMatch(PARSER), weights.accuracy),
        "format": (AnswerFormat(PARSER), weights.format),
        BOX_IOU: (_IOU, weights.box_iou),
        ALIGNMENT: (_ALIGNMENT, weights.alignment),
    }
    return RewardSet(parts)


def score_answer(example: Example, text: str) -> dict[str, float]:
    """Return the IoU of the boxes, 0 if the text is no answer, and whether it is aligned.

    What does not apply is not there: IoU without reference boxes, alignment of what is no answer
    or cannot be judged.
    """
    iou, aligned = (part(example, Completion(text)) for part in (_IOU, _ALIGNMENT))
    found = {BOX_IOU: iou.value, ALIGNMENT: None if aligned.invalid else aligned.value}
    return {name: value for name, value in found.items() if value is not None}


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
    """Return the predictions with IoU, alignment and pairs."""
    return [_complete(one, examples[one.example_id]) for one in predictions]


def _complete(prediction: Prediction, example: Example) -> Prediction:
    scores = score_answer(example, prediction.text) if prediction.text else {}
    shown = {
        name: example.fields[name] for name in ("relation", "source") if name in example.fields
    }
    return replace(
        prediction,
        fields={**prediction.fields, **shown},
        scores={**prediction.scores, **scores},
        pair=str(example.fields.get("pair", "")),
    )
