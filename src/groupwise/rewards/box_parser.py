"""The answer parser of boxes: in one of the forms of ``box_text``, alone or among words."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, Self

from pydantic import model_validator

from groupwise.core import Example, RewardError
from groupwise.rewards.box_text import MAX_BOXES, Box, describe_forms, has_words, parse_boxes
from groupwise.rewards.fields import read_list, read_numbers
from groupwise.rewards.parser import OpenParser, Parsed
from groupwise.rewards.reward import Reward


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
        from groupwise.rewards.boxes import BoxIou

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
