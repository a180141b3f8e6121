"""Rewards and measures of answers with boxes in their reasoning."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from groupwise.core import Completion, Example, Score
from groupwise.evaluation.predictions import MARKS, Measure, Policies, Prediction, RunPolicy
from groupwise.evaluation.report.phrases import Phrases
from groupwise.judges import Judge, NoVerdict, Question, Verdict, judge_all
from groupwise.rewards import (
    AnswerFormat,
    Box,
    BoxIou,
    BoxParser,
    LabelMatch,
    Reward,
    RewardKind,
    RewardSet,
)
from groupwise_recipes.visual_reasoning.answers import QUESTION_PARSER, read_leniently
from groupwise_recipes.visual_reasoning.bias import BIAS
from groupwise_recipes.visual_reasoning.box_rivals import OTHER_SCENE
from groupwise_recipes.visual_reasoning.boxes import Size
from groupwise_recipes.visual_reasoning.config import TAGS, RewardWeights
from groupwise_recipes.visual_reasoning.judging import (
    ALIGNED,
    RuleEntailment,
    ask_about,
    describe_verdict,
    explain_verdict,
)
from groupwise_recipes.visual_reasoning.teaching import is_drawn, read_boxes

BOX_IOU, ALIGNMENT, LENIENT = "box_iou", "alignment", "lenient_accuracy"
ENTAILMENT = "entailment"
"""Field of predictions: what the judge said of the reasoning."""
MEASURES = (
    Measure(BOX_IOU, "IoU of boxes in the reasoning", "推理中框的 IoU"),
    Measure(ALIGNMENT, "Reasoning entails the answer", "推理蕴含回答"),
    Measure(LENIENT, "Accuracy by the last True or False", "准确率（取最后的 True/False）"),
)
_SAID: Mapping[bool | None, tuple[str, str]] = {
    True: ("The reasoning entails the answer", "推理蕴含回答"),
    False: ("The reasoning does not entail the answer", "推理不蕴含回答"),
    None: ("No verdict on the reasoning", "对推理没有裁决"),
}
_PARSER = BoxParser(tags=TAGS, tag="think", words=True)
_ANY_NAME = BoxIou(_PARSER)
_OWN_NAME = BoxIou(_PARSER.model_copy(update={"match_labels": True}))


class ReasoningIou:
    """IoU of the boxes in the reasoning, as of ``BoxIou``.

    Of drawn scenes a box counts only under the name of its reference; the names of published sets
    are free words, and other words for a thing are no fault.
    """

    name = BOX_IOU
    kind: RewardKind = "truth"

    def applies_to(self, example: Example) -> bool:
        """Return whether there are reference boxes."""
        return _ANY_NAME.applies_to(example)

    def __call__(self, example: Example, completion: Completion) -> Score:
        """Return the score."""
        return (_OWN_NAME if is_drawn(example) else _ANY_NAME)(example, completion)


_IOU = ReasoningIou()


class Alignment:
    """1 where the reasoning entails the answer that is given, right or wrong.

    A text that is no answer is invalid; without a verdict there is no score.

    Args:
        judge: of entailment.
    """

    name = ALIGNMENT

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        is_rule = isinstance(judge, RuleEntailment)
        self.kind: RewardKind = "other" if is_rule else "judgement"

    def __call__(self, example: Example, completion: Completion) -> Score:
        """Return the score of one answer."""
        return self.score_batch([example], [completion])[0]

    def score_batch(
        self, examples: Sequence[Example], completions: Sequence[Completion]
    ) -> list[Score]:
        """Return one score per pair, in order; the judge is asked about all of them at once."""
        texts = [completion.text for completion in completions]
        verdicts = judge_answers(self.judge, list(zip(examples, texts, strict=True)))
        return [_INVALID if verdict is None else _score(verdict) for verdict in verdicts]


_INVALID = Score(0.0, "no answer", invalid=True)


def _score(verdict: Verdict | NoVerdict) -> Score:
    if isinstance(verdict, NoVerdict):
        return Score(None, f"no verdict ({verdict.message})")
    return Score(float(verdict.label == ALIGNED), explain_verdict(verdict))


def judge_answers(
    judge: Judge, answers: Sequence[tuple[Example, str]]
) -> list[Verdict | NoVerdict | None]:
    """Return what a judge says of each answer to an example; None of a text that is no answer."""
    asked = [_ask(example, text) for example, text in answers]
    verdicts = iter(judge_all(judge, [one for one in asked if one is not None]))
    return [None if one is None else next(verdicts) for one in asked]


def _ask(example: Example, text: str) -> Question | None:
    label = QUESTION_PARSER.parse(text, example).label
    reasoning = text.partition("<think>")[2].partition("</think>")[0].strip()
    return None if label is None else ask_about(example, reasoning, label)


def make_rewards(weights: RewardWeights, judge: Judge | None = None) -> RewardSet:
    """Return the rewards with their weights; a part of weight 0 is only logged."""
    parts: dict[str, tuple[Reward, float]] = {
        "accuracy": (LabelMatch(QUESTION_PARSER), weights.accuracy),
        "format": (AnswerFormat(QUESTION_PARSER), weights.format),
        BOX_IOU: (_IOU, weights.box_iou),
    }
    if judge is not None:
        parts[ALIGNMENT] = (Alignment(judge), weights.alignment)
    return RewardSet(parts)


def measure_boxes(example: Example, text: str) -> dict[str, float]:
    """Return the IoU of the boxes, 0 if the text is no answer; nothing without reference boxes."""
    found = _IOU(example, Completion(text))
    return {} if found.value is None else {BOX_IOU: found.value}


def measure_leniently(example: Example, text: str) -> dict[str, float]:
    """Return whether the last True or False of a text is right; nothing of questions with choices.

    It pays what the rewards do not, and stands beside accuracy to tell form from knowledge.
    """
    if "options" in example.fields:
        return {}
    return {LENIENT: float(read_leniently(text) == example.label)}


def describe_checkpoint(policies: Iterable[RunPolicy]) -> list[RunPolicy]:
    """Return the policies of a run whose base is a published checkpoint."""
    told: dict[str, Any] = {
        "title": "Published checkpoint",
        "title_zh": "已发表的检查点",
        "note": "as it was published, nothing is trained here",
        "note_zh": "按发表原样，未在此训练",
    }
    return [replace(one, **told) if one.kind == "prompted" else one for one in policies]


def mark_silent(
    policies: Iterable[RunPolicy], targets: str | None, *, checkpoint: str | None = None
) -> list[RunPolicy]:
    """Return the policies of a run; alignment is none of those that do not reason.

    These are baselines that say a label, and what was last taught by answers alone.
    """
    found = Policies(tuple(policies))

    def is_silent(one: RunPolicy) -> bool:
        if one.kind == "baseline":
            return one.name != OTHER_SCENE.name
        steps = {before.step for before in found.list_ancestors(one.name)}
        if checkpoint in ("sft", "grpo"):
            steps.add("sft")
        return one.step == "sft_control" or (targets == "answer" and "sft" in steps)

    return [
        replace(one, inapplicable=(*one.inapplicable, ALIGNMENT)) if is_silent(one) else one
        for one in found.listed
    ]


def complete_predictions(
    examples: Mapping[str, Example],
    predictions: Sequence[Prediction],
    *,
    policies: Sequence[RunPolicy],
    judge: Judge | None = None,
) -> list[Prediction]:
    """Return the predictions with IoU, alignment and pairs."""
    silent = {one.name for one in policies if ALIGNMENT in one.inapplicable}
    judged = [one for one in predictions if one.text and one.policy not in silent]
    asked = [(examples[one.example_id], one.text) for one in judged]
    verdicts = [] if judge is None else judge_answers(judge, asked)
    known = {
        (one.policy, one.example_id): verdict
        for one, verdict in zip(judged, verdicts, strict=False)
        if verdict is not None
    }
    return [
        _complete(one, examples[one.example_id], known.get((one.policy, one.example_id)))
        for one in predictions
    ]


def _complete(
    prediction: Prediction, example: Example, verdict: Verdict | NoVerdict | None
) -> Prediction:
    scores = measure_boxes(example, prediction.text) if prediction.text else {}
    scores |= measure_leniently(example, prediction.text or prediction.predicted or "")
    shown = {
        name: example.fields[name]
        for name in ("relation", "source", BIAS)
        if name in example.fields
    }
    if isinstance(verdict, Verdict):
        scores[ALIGNMENT] = float(verdict.label == ALIGNED)
    said = {} if verdict is None else {ENTAILMENT: describe_verdict(verdict)}
    marks = mark_answer(example, prediction.text, said.get(ENTAILMENT))
    return replace(
        prediction,
        fields={**prediction.fields, **shown, **said, **({MARKS: marks} if marks else {})},
        scores={**prediction.scores, **scores},
        pair=str(example.fields.get("pair", "")),
    )


def mark_answer(example: Example, text: str, verdict: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the marks of an answer, as the field ``MARKS`` of predictions has them."""
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
