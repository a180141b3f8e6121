"""Boxes as answers: their parser, and the reward of lying where the reference boxes are.

Range: [0, 1]. Boxes are written in one of the forms of ``box_text``, in pixels of the picture as
the model saw it.

Source: mean IoU over the best one-to-one assignment (Kuhn 1955, the Hungarian method), with every
box that is left over on either side counting as 0, as in the grounding rewards of visual GRPO.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, Self, cast

from pydantic import model_validator

from groupwise.core import Completion, Example, RewardError, Score
from groupwise.rewards.box_text import MAX_BOXES, Box, describe_forms, has_words, parse_boxes
from groupwise.rewards.fields import read_list, read_numbers
from groupwise.rewards.parser import OpenParser, Parsed
from groupwise.rewards.reward import Reward, RewardKind
from groupwise.rewards.text import normalize_text


class BoxParser(OpenParser):
    """Boxes in pixels of the picture as the model saw it; ``[]`` says that there is none.

    Its values are tuples with a Box for each, and None for each that is malformed. A text with
    nothing but malformed ones is no answer.

    Attributes:
        tag: which of the tags holds the boxes; None: the last one.
        boxes: field of examples with the reference boxes ``[x1, y1, x2, y2]`` or ``[..., label]``,
            in pixels of the original picture; where one has a label, answers need labels, too.
        words: whether words may stand beside boxes; then a text without boxes says that there is
            none.
        match_labels: count only pairs with the same label, case, articles and punctuation aside.
    """

    kind: Literal["boxes"] = "boxes"
    tag: str | None = None
    boxes: str = "boxes"
    words: bool = False
    match_labels: bool = False

    @model_validator(mode="after")
    def _check_tag(self) -> Self:
        if self.tag is not None and self.tag not in self.tags:
            raise ValueError(f"there is no tag {self.tag!r}; expected one of {list(self.tags)}")
        return self

    @property
    def answer_tag(self) -> str:
        """The tag that holds the boxes, if there are tags."""
        return self.tag or self.tags[-1]

    def make_reward(self) -> Reward:
        """Return the reward of boxes where the reference boxes are."""
        return BoxIou(self)

    def read_references(self, example: Example) -> list[Box] | None:
        """Return the reference boxes of an example; None if it has no such field.

        Raises:
            RewardError: if they cannot be used.
        """
        given: object = example.fields.get(self.boxes)
        if given is None:
            return None
        boxes = read_boxes(given)
        if boxes is None:
            raise RewardError(
                f"example {example.id} has reference boxes that cannot be used",
                got=repr(given),
                expected="a list of [x1, y1, x2, y2] or [x1, y1, x2, y2, label]",
            )
        return boxes

    def write_near_misses(self, target: str) -> list[str]:
        """Return the boxes moved, grown, twice, and without one of them."""
        boxes = parse_boxes(self._normalize(target), needs_label=False)[0]
        changed = [[_move(box) for box in boxes], [_grow(box) for box in boxes], boxes * 2]
        changed += [boxes[:place] + boxes[place + 1 :] for place in range(len(boxes))]
        return [self._frame(_write_boxes(near)) for near in changed]

    def _read(self, text: str, example: Example | None) -> Parsed:
        references = (self.read_references(example) if example else None) or []
        needs_label = any(box.label for box in references)
        if not self.words and has_words(text):
            return Parsed(None, "there are words beside the boxes")
        boxes, num_malformed = parse_boxes(text, needs_label=needs_label)
        if len(boxes) + num_malformed > MAX_BOXES:
            return Parsed(None, f"more than {MAX_BOXES} boxes")
        if num_malformed and not boxes:
            forms = describe_forms(needs_label=needs_label)
            problem = f"{num_malformed} malformed box(es) and no other; they are read as {forms}"
            return Parsed(None, problem)
        return Parsed(_write_boxes(boxes), value=(*boxes, *[None] * num_malformed))

    def _normalize(self, target: str) -> str:
        """Return boxes in one form; a list of ``[x1, y1, x2, y2, label]`` as JSON is read, too."""
        try:
            boxes = read_boxes(json.loads(target))
        except (ValueError, RecursionError):
            boxes = None
        return _write_boxes(parse_boxes(target, needs_label=False)[0] if boxes is None else boxes)


def read_boxes(rows: object) -> list[Box] | None:
    """Return boxes given as rows of sides and, if wanted, a label; None if they are not that."""
    found = [_read_box(row) for row in read_list(rows) or ()]
    boxes = [box for box in found if box is not None]
    return boxes if read_list(rows) is not None and len(boxes) == len(found) else None


def _read_box(row: object) -> Box | None:
    values = read_list(row) or ()
    sides = read_numbers(values[:4])
    if sides is None or len(values) not in (4, 5):
        return None
    x1, y1, x2, y2 = sides
    return Box(x1, y1, x2, y2, str(values[4]) if len(values) == 5 else "")


def _move(box: Box) -> Box:
    width = box.x2 - box.x1
    return replace(box, x1=box.x1 + width, x2=box.x2 + width)


def _grow(box: Box) -> Box:
    return replace(box, x1=0.0, y1=0.0, x2=2 * box.x2, y2=2 * box.y2)


def _write_boxes(boxes: Sequence[Box]) -> str:
    rows = [
        {"bbox_2d": [box.x1, box.y1, box.x2, box.y2], **({"label": box.label} if box.label else {})}
        for box in boxes
    ]
    return json.dumps(rows, ensure_ascii=False)


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
