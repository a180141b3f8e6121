"""What boxes earn that do not see the picture: those of another scene, and one place for all."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle
from typing import Any

import numpy as np

from groupwise.core import Example
from groupwise.evaluation.predictions import Prediction, RunPolicy
from groupwise_recipes.visual_reasoning.answers import QUESTION_PARSER
from groupwise_recipes.visual_reasoning.teaching import write_target

OTHER_SCENE = RunPolicy(
    name="other_scene",
    title="Another scene's boxes",
    title_zh="另一场景的框",
    note="boxes and answer of the scene before it, with the names of this one",
    note_zh="前一个场景的框与回答，名称换成本场景的",
    kind="baseline",
)
ONE_PLACE = RunPolicy(
    name="one_place",
    title="One place for all boxes",
    title_zh="所有框都在同一处",
    note="every name in the one box that earns most in training, and the commonest answer of it",
    note_zh="每个名称都用训练中得分最高的同一个框，回答取训练中最常见的",
    kind="baseline",
    step="baselines",
    trained_on=("train",),
    blind_to=("picture",),
)
_NUM_LINES = 16
_MAX_BOXES = 500
_Shares = tuple[float, float, float, float]


def predict_other_scene(examples: Sequence[Example]) -> list[Prediction]:
    """Return for each scene the answer of the one before it, its boxes under this one's names.

    What it earns is what boxes earn that know the habits of the scenes and not the picture. It is
    told where two clusters at least have boxes; an item without boxes is answered without any.
    """
    if len({one.cluster for one in examples if one.fields.get("boxes")}) < 2:
        return []
    return [_predict_other(examples, number) for number in range(len(examples))]


def _predict_other(examples: Sequence[Example], number: int) -> Prediction:
    example = examples[number]
    other = next(
        one
        for one in (*reversed(examples[:number]), *reversed(examples))
        if one.cluster != example.cluster and one.fields.get("boxes")
    )
    (w, h) = other.fields["picture_size"]
    places = [(x1 / w, y1 / h, x2 / w, y2 / h) for x1, y1, x2, y2, _ in other.fields["boxes"]]
    return _predict(example, str(other.label), places, OTHER_SCENE)


def predict_one_place(train: Sequence[Example], test: Sequence[Example]) -> list[Prediction]:
    """Return answers with all boxes in the one place that earns most in training.

    It is told where boxes stand in both; an item without boxes is answered without any.
    """
    told = [_find_shares(one) for one in train if one.fields.get("boxes")]
    if not told or not any(one.fields.get("boxes") for one in test):
        return []
    place = choose_place(np.concatenate(told)[:_MAX_BOXES])
    counts = Counter(str(one.label) for one in train)
    label = min(counts, key=lambda name: (-counts[name], name))
    return [
        _predict(one, label, [place] * len(one.fields.get("boxes", ())), ONE_PLACE) for one in test
    ]


def choose_place(boxes: Any) -> _Shares:
    """Return the box with the highest mean IoU to given ones, on lines a sixteenth apart."""
    lines = np.arange(_NUM_LINES + 1) / _NUM_LINES
    starts, ends = (lines[side] for side in np.triu_indices(len(lines), 1))

    def overlap(low: Any, high: Any) -> Any:
        return np.clip(np.minimum(ends[:, None], high) - np.maximum(starts[:, None], low), 0, None)

    shared = overlap(boxes[:, 0], boxes[:, 2])[:, None] * overlap(boxes[:, 1], boxes[:, 3])
    areas = (ends - starts)[:, None] * (ends - starts)
    given = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    earned = (shared / (areas[..., None] + given - shared)).mean(-1)
    across, down = np.unravel_index(earned.argmax(), earned.shape)
    return float(starts[across]), float(starts[down]), float(ends[across]), float(ends[down])


def _find_shares(example: Example) -> Any:
    """Return the reference boxes, (boxes, 4), as shares of the picture's sides."""
    sides = np.array([box[:4] for box in example.fields["boxes"]], dtype=float)
    return sides / np.tile(example.fields["picture_size"], 2)


def _predict(
    example: Example, label: str, places: Sequence[_Shares], policy: RunPolicy
) -> Prediction:
    """Return the answer with boxes at the given shares of the picture, under its own names."""
    guess = replace(example, label=label, fields=_put_boxes(example, places))
    text = write_target(guess, "boxes")
    found = QUESTION_PARSER.parse(text, example)
    return Prediction(
        example_id=example.id,
        cluster=example.cluster,
        split="test",
        policy=policy.name,
        label=str(example.label),
        predicted=found.label,
        reason=found.reason,
        text=text,
    )


def _put_boxes(example: Example, places: Sequence[_Shares]) -> dict[str, object]:
    """Return the fields of an example with other boxes, at the same parts of its picture."""
    fields = {name: value for name, value in example.fields.items() if name != "reasonings"}
    if not fields.get("boxes"):
        return fields
    width, height = fields["picture_size"]
    boxes = [
        [x1 * width, y1 * height, x2 * width, y2 * height, own[4]]
        for (x1, y1, x2, y2), own in zip(places, cycle(fields["boxes"]), strict=False)
    ]
    return {**fields, "boxes": boxes}
