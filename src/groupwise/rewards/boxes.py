"""Reward: do the boxes in a text lie where the reference boxes are?

Range: [0, 1]. Boxes are written in one of the forms of ``box_text``, in pixels of the picture as
the model saw it.

Source: mean IoU over the best one-to-one assignment (Kuhn 1955, the Hungarian method), with every
box that is left over on either side counting as 0, as in the grounding rewards of visual GRPO.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

from groupwise.core import Completion, Example, RewardError, Score
from groupwise.rewards.box_parser import BoxParser
from groupwise.rewards.box_text import Box, describe_forms
from groupwise.rewards.fields import read_numbers
from groupwise.rewards.reward import RewardKind
from groupwise.rewards.text_answers import normalize_text


class BoxIou:
    """Mean IoU of the predicted and the reference boxes, over the larger number of the two.

    Malformed and reversed boxes count as predictions with IoU 0; a text with nothing but those is
    invalid. ``[x1,y1,x2,y2]`` is malformed where a reference has a label. No box where there is a
    reference earns 0, and where there is none there is nothing to score. A box beyond the reference
    is a wrong one.

    Args:
        parser: finds the boxes; None: a BoxParser that lets words stand beside them.
        picture_size, seen_size: fields with ``[width, height]`` of the original picture and of the
            picture as the model saw it; without them the two are the same.
    """

    name = "box_iou"
    kind: RewardKind = "truth"
    runs_beside_scoring = True

    def __init__(
        self,
        parser: BoxParser | None = None,
        *,
        picture_size: str = "picture_size",
        seen_size: str = "seen_size",
    ) -> None:
        self.parser = parser or BoxParser(words=True)
        self.picture_size = picture_size
        self.seen_size = seen_size

    def applies_to(self, example: Example) -> bool:
        """Return whether the example has reference boxes, or says that there are none."""
        return example.fields.get(self.parser.boxes) is not None

    def __call__(self, example: Example, completion: Completion) -> Score:
        """Return the score.

        Raises:
            RewardError: if the reference boxes or the sizes cannot be used.
        """
        references = self.parser.read_references(example)
        if references is None:
            return Score(None, f"no field {self.parser.boxes}")
        answer = self.parser.parse(completion.text, example)
        if answer.label is None:
            return Score(0.0, answer.reason, invalid=True)
        boxes = [box for box in answer.value if box is not None]
        if not references:
            return Score(0.0, "a box where there is none") if boxes else Score(None, "no boxes")
        if not boxes:
            forms = describe_forms(needs_label=any(box.label for box in references))
            return Score(0.0, f"no box; they are read as {forms}")
        num_predicted = len(answer.value)
        num_malformed = num_predicted - len(boxes)
        x, y = self._find_scale(example)
        scaled = [box.scale(x, y) for box in boxes]
        overlaps = match_boxes(scaled, references, match_labels=self.parser.match_labels)
        mean = sum(overlaps) / max(num_predicted, len(references))
        malformed = f", {num_malformed} of them malformed" if num_malformed else ""
        return Score(
            min(1.0, mean),
            f"mean IoU {mean:.3f} of {num_predicted} boxes{malformed}, {len(references)} expected",
        )

    def _find_scale(self, example: Example) -> tuple[float, float]:
        """Return what takes pixels of the seen picture to pixels of the original, by axis."""
        sizes = [example.fields.get(name) for name in (self.picture_size, self.seen_size)]
        if None in sizes:
            return 1.0, 1.0
        (width, height), (seen_width, seen_height) = (_read_size(size, example) for size in sizes)
        return width / seen_width, height / seen_height


def compute_iou(a: Box, b: Box) -> float:
    """Return the area of the intersection over that of the union, in [0, 1]."""
    width = min(a.x2, b.x2) - max(a.x1, b.x1)
    height = min(a.y2, b.y2) - max(a.y1, b.y1)
    shared = max(0.0, width) * max(0.0, height)
    areas = [(box.x2 - box.x1) * (box.y2 - box.y1) for box in (a, b)]
    return min(1.0, shared / (sum(areas) - shared))


def match_boxes(
    predicted: Sequence[Box], references: Sequence[Box], *, match_labels: bool
) -> list[float]:
    """Return the IoUs of the one-to-one assignment with the largest sum."""
    import numpy as np
    import scipy.optimize  # pyright: ignore[reportMissingTypeStubs]

    if not predicted or not references:
        return []
    assign = cast("Callable[..., Any]", scipy.optimize.linear_sum_assignment)  # pyright: ignore

    def overlap(a: Box, b: Box) -> float:
        is_other = match_labels and normalize_text(a.label) != normalize_text(b.label)
        return 0.0 if is_other else compute_iou(a, b)

    overlaps = np.array([[overlap(a, b) for b in references] for a in predicted])
    rows, columns = assign(overlaps, maximize=True)
    return [float(value) for value in overlaps[rows, columns]]


def _read_size(size: object, example: Example) -> tuple[float, float]:
    values = read_numbers(size) or []
    if len(values) != 2 or min(values) <= 0:
        raise RewardError(
            f"example {example.id} has a picture size that cannot be used",
            got=repr(size),
            expected="[width, height] in pixels",
        )
    return values[0], values[1]
