"""Reward: do the boxes in a text lie where the reference boxes are?

Range: [0, 1]. Boxes are written in one of the forms of ``box_text``, in pixels of the picture as
the model saw it.

Source: mean IoU over the best one-to-one assignment (Kuhn 1955, the Hungarian method), with every
box that is left over on either side counting as 0, as in the grounding rewards of visual GRPO.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

from groupwise.core import Completion, Example, RewardError, Score
from groupwise.rewards.box_text import MAX_BOXES, Box, describe_forms, parse_boxes
from groupwise.rewards.fields import read_list, read_numbers
from groupwise.rewards.reward import RewardKind
from groupwise.rewards.tags import TagContract
from groupwise.rewards.text_answers import normalize_text


class BoxIou:
    """Mean IoU of the predicted and the reference boxes, over the larger number of the two.

    Malformed and reversed boxes count as predictions with IoU 0; a text with nothing but those is
    invalid. ``[x1,y1,x2,y2]`` is malformed where a reference has a label. No box where there is a
    reference earns 0, and where there is none there is nothing to score. A box beyond the reference
    is a wrong one.

    Args:
        contract: where the boxes stand; None: in the whole completion.
        tag: the part with the boxes, if there is a contract.
        boxes: field with the reference boxes ``[x1, y1, x2, y2]`` or ``[..., label]``, in pixels
            of the original picture.
        picture_size, seen_size: fields with ``[width, height]`` of the original picture and of the
            picture as the model saw it; without them the two are the same.
        match_labels: count only pairs with the same label, case, articles and punctuation aside.
    """

    name = "box_iou"
    kind: RewardKind = "truth"
    runs_beside_scoring = True

    def __init__(
        self,
        contract: TagContract | None = None,
        *,
        tag: str = "think",
        boxes: str = "boxes",
        picture_size: str = "picture_size",
        seen_size: str = "seen_size",
        match_labels: bool = False,
    ) -> None:
        if contract is not None and tag not in contract.tags:
            raise RewardError(
                "the contract has no such tag", got=tag, expected=f"one of {list(contract.tags)}"
            )
        self.contract = contract
        self.tag = tag
        self.boxes = boxes
        self.picture_size = picture_size
        self.seen_size = seen_size
        self.match_labels = match_labels

    def applies_to(self, example: Example) -> bool:
        """Return whether the example has reference boxes, or says that there are none."""
        return example.fields.get(self.boxes) is not None

    def __call__(self, example: Example, completion: Completion) -> Score:
        """Return the score.

        Raises:
            RewardError: if the reference boxes or the sizes cannot be used.
        """
        if example.fields.get(self.boxes) is None:
            return Score(None, f"no field {self.boxes}")
        references = _read_references(example, self.boxes)
        text, problem = self._read_text(completion.text)
        if problem:
            return Score(0.0, problem, invalid=True)
        needs_label = any(box.label for box in references)
        boxes, num_malformed = parse_boxes(text, needs_label=needs_label)
        num_predicted = len(boxes) + num_malformed
        if num_predicted > MAX_BOXES:
            return Score(0.0, f"more than {MAX_BOXES} boxes", invalid=True)
        if num_malformed and not boxes:
            forms = describe_forms(needs_label=needs_label)
            problem = f"{num_malformed} malformed box(es) and no other; they are read as {forms}"
            return Score(0.0, problem, invalid=True)
        if not references:
            return Score(0.0, "a box where there is none") if boxes else Score(None, "no boxes")
        if not boxes:
            return Score(0.0, f"no box; they are read as {describe_forms(needs_label=needs_label)}")
        x, y = self._find_scale(example)
        overlaps = match_boxes(
            [box.scale(x, y) for box in boxes], references, match_labels=self.match_labels
        )
        mean = sum(overlaps) / max(num_predicted, len(references))
        malformed = f", {num_malformed} of them malformed" if num_malformed else ""
        return Score(
            min(1.0, mean),
            f"mean IoU {mean:.3f} of {num_predicted} boxes{malformed}, {len(references)} expected",
        )

    def _read_text(self, text: str) -> tuple[str, str]:
        if self.contract is None:
            return text, "" if text.strip() else "empty answer"
        tagged = self.contract.parse(text)
        return tagged.parts.get(self.tag, ""), tagged.reason

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


def _read_references(example: Example, field: str) -> list[Box]:
    given: object = example.fields[field]
    rows = read_list(given)
    boxes = [_read_box(row) for row in rows] if rows is not None else [None]
    if None in boxes:
        raise RewardError(
            f"example {example.id} has reference boxes that cannot be used",
            got=repr(given),
            expected="a list of [x1, y1, x2, y2] or [x1, y1, x2, y2, label]",
        )
    return [box for box in boxes if box is not None]


def _read_box(row: object) -> Box | None:
    values = read_list(row) or ()
    sides = read_numbers(values[:4])
    if sides is None or len(values) not in (4, 5):
        return None
    x1, y1, x2, y2 = sides
    return Box(x1, y1, x2, y2, str(values[4]) if len(values) == 5 else "")


def _read_size(size: object, example: Example) -> tuple[float, float]:
    values = read_numbers(size) or []
    if len(values) != 2 or min(values) <= 0:
        raise RewardError(
            f"example {example.id} has a picture size that cannot be used",
            got=repr(size),
            expected="[width, height] in pixels",
        )
    return values[0], values[1]
