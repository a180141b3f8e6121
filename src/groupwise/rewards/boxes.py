r"""Boxes as answers: their parser, and the reward of lying where the reference boxes are.

Range: [0, 1]. Boxes are in pixels of the picture as the model saw it, x to the right and y down,
the upper left corner first, as models write them:

- ``[x1,y1,x2,y2 label]``, also ``[x1,y1,x2,y2]``, in a list or not;
- ``{"bbox_2d": [x1,y1,x2,y2], "label": "…"}``, one or a list of them, fenced or not: Qwen2.5-VL and
  later; the label may be left out;
- ``(x1,y1),(x2,y2)``: Qwen-VL and Qwen2-VL.

Source: https://github.com/QwenLM/Qwen3-VL (cookbooks/2d_grounding.ipynb) for the second form and
Bai et al. 2023 (arXiv:2308.12966) for the third; mean IoU over the best one-to-one assignment
(Kuhn 1955, the Hungarian method), with every box that is left over on either side counting as 0, as
in the grounding rewards of visual GRPO.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Literal, NamedTuple, Self, cast

from pydantic import model_validator

from groupwise.core import Example, RewardError, Score
from groupwise.rewards.reward import (
    AnswerReward,
    OpenParser,
    Parsed,
    Reward,
    RewardKind,
    read_list,
    read_mapping,
    refuse_repeated,
)
from groupwise.rewards.text import normalize_text

_MAX_BOXES = 100
_LARGEST = 1_000_000
_NUMBER = r"(\d{1,6}(?:\.\d{1,6})?)"
_SIDES = r"\s*,\s*".join([_NUMBER] * 4)
_LABEL = r'(?:\s+|\s*,\s+|\s*,(?="))([^\s,].*)'
# Compiled when a box is read.
_WITH_LABEL = f"(?s){_SIDES}{_LABEL}"
_ANY = f"(?s){_SIDES}(?:{_LABEL})?"
_CORNERS = rf"\(\s*{_NUMBER}\s*,\s*{_NUMBER}\s*\)\s*,\s*\(\s*{_NUMBER}\s*,\s*{_NUMBER}\s*\)"
_POINT = r"\(\s*[-+]?\.?\d[\d.]*\s*,[-+.\d\s,]*\)"
_ATTEMPT = re.compile(
    r"""(?P<object>\{(?=(?:[^{}"]|"[^"\n]*")*?["']?bbox_2d))"""
    rf"|(?P<corners>{_POINT}(?:\s*,\s*{_POINT})+)"
    r"|(?P<bracket>\[(?=\s*[-+]?\.?\d)([^\[\]]*)(\]?))"
)
_TORN_OBJECT = re.compile(r"\{[^{}]*bbox_2d[^{}]*\}?")
_FENCE = re.compile(r"^\s*```(?:json)?[ \t]*\n|\n[ \t]*```\s*$")
_BETWEEN = re.compile(r"[\s,;，；、\[\]]*")


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle with x1 < x2 and y1 < y2, in pixels, and what is in it."""

    x1: float
    y1: float
    x2: float
    y2: float
    label: str = ""

    def __post_init__(self) -> None:
        if not (self.x1 < self.x2 and self.y1 < self.y2):
            raise RewardError(
                "a box has no area",
                got=[self.x1, self.y1, self.x2, self.y2],
                expected="x1 < x2 and y1 < y2",
            )

    def scale(self, x: float, y: float) -> "Box":
        return Box(self.x1 * x, self.y1 * y, self.x2 * x, self.y2 * y, self.label)


class _Attempt(NamedTuple):
    form: str
    box: Box | None
    span: tuple[int, int]


def parse_boxes(text: str, *, needs_label: bool = True) -> tuple[list[Box], int]:
    """Return the boxes in a text and the number of malformed ones.

    A bracket that begins with a number is meant as a box, and so are an object with ``bbox_2d``
    and points in a row; other brackets are text. Boxes in more than one form are all malformed:
    whether one is another one again cannot be told. Nothing is read beyond the first box too many.

    Args:
        text: of a completion.
        needs_label: whether ``[x1,y1,x2,y2]`` without a label is malformed.
    """
    attempts = list(islice(_list_attempts(text, needs_label=needs_label), _MAX_BOXES + 1))
    boxes = [one.box for one in attempts if one.box is not None]
    if len({one.form for one in attempts if one.box is not None}) > 1:
        boxes = []
    return boxes, len(attempts) - len(boxes)


def _list_attempts(text: str, *, needs_label: bool) -> Iterator[_Attempt]:
    """Yield everything that is meant as a box; without the box if it is malformed."""
    position = 0
    while match := _ATTEMPT.search(text, position):
        if match["object"]:
            is_attempt, box, position = _read_object(text, match.start())
            if is_attempt:
                yield _Attempt("object", box, (match.start(), position))
            continue
        position = match.end()
        if match["corners"]:
            form, sides = "corners", re.fullmatch(_CORNERS, match["corners"])
        else:
            pattern = _WITH_LABEL if needs_label else _ANY
            form, sides = "bracket", re.fullmatch(pattern, match[4].strip()) if match[5] else None
        values = sides.groups() if sides else ()
        label = next((group for group in values[4:] if group), "")
        yield _Attempt(form, _make_box([float(value) for value in values[:4]], label), match.span())


def _make_box(sides: Sequence[float], label: str) -> Box | None:
    if len(sides) != 4:
        return None
    x1, y1, x2, y2 = sides
    is_valid = 0 <= x1 < x2 < _LARGEST and 0 <= y1 < y2 < _LARGEST
    # Only now: a whole number may be too large for a float.
    return Box(float(x1), float(y1), float(x2), float(y2), label) if is_valid else None


def _read_object(text: str, start: int) -> tuple[bool, Box | None, int]:
    """Return whether the object at ``start`` is meant as a box, the box, and where to read on."""
    try:
        value, end = json.JSONDecoder(object_pairs_hook=refuse_repeated).raw_decode(text, start)
    except (ValueError, RecursionError):
        torn = _TORN_OBJECT.match(text, start)
        return torn is not None, None, torn.end() if torn else start + 1
    fields = read_mapping(value) or {}
    if "bbox_2d" not in fields:
        return False, None, start + 1
    given, label = read_list(fields["bbox_2d"]) or (), fields.get("label", "")
    sides = [x for x in given if isinstance(x, int | float) and not isinstance(x, bool)]
    is_whole = len(sides) == len(given) and isinstance(label, str)
    return True, _make_box(sides, str(label)) if is_whole else None, end


def _describe_forms(*, needs_label: bool) -> str:
    if needs_label:
        return '[x1,y1,x2,y2 label] or {"bbox_2d": [x1,y1,x2,y2], "label": "label"}'
    return '[x1,y1,x2,y2], {"bbox_2d": [x1,y1,x2,y2]} or (x1,y1),(x2,y2)'


def _read_numbers(value: object) -> list[float] | None:
    items = read_list(value)
    numbers = [float(item) for item in items or () if isinstance(item, int | float)]
    return None if items is None or len(numbers) < len(items) else numbers


def _read_rows(rows: object) -> list[Box] | None:
    """Return boxes of rows of sides and, if wanted, a label; None if they are not that."""
    given, boxes = read_list(rows), list[Box]()
    for row in given or ():
        values = read_list(row) or ()
        sides = _read_numbers(values[:4])
        if len(values) not in (4, 5) or sides is None:
            return None
        boxes.append(Box(*sides, label=str(values[4]) if len(values) == 5 else ""))
    return None if given is None else boxes


def _write_boxes(boxes: Sequence[Box]) -> str:
    rows = [
        {"bbox_2d": [box.x1, box.y1, box.x2, box.y2], **({"label": box.label} if box.label else {})}
        for box in boxes
    ]
    return json.dumps(rows, ensure_ascii=False)


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
        return self.tag or self.tags[-1]

    def make_reward(self) -> Reward:
        return BoxIou(self)

    def read_references(self, example: Example) -> list[Box] | None:
        """Return the reference boxes of an example; None if it has no such field.

        Raises:
            RewardError: if they cannot be used.
        """
        given: object = example.fields.get(self.boxes)
        boxes = _read_rows(given)
        if given is not None and boxes is None:
            raise RewardError(
                f"example {example.id} has reference boxes that cannot be used",
                got=repr(given),
                expected="a list of [x1, y1, x2, y2] or [x1, y1, x2, y2, label]",
            )
        return boxes

    def write_near_misses(self, target: str) -> list[str]:
        """Return the boxes moved, grown, twice, and without one of them."""
        boxes = parse_boxes(self._normalize(target), needs_label=False)[0]
        moved = [replace(box, x1=box.x2, x2=box.x2 + box.x2 - box.x1) for box in boxes]
        grown = [Box(0.0, 0.0, 2 * box.x2, 2 * box.y2, box.label) for box in boxes]
        without = [boxes[:place] + boxes[place + 1 :] for place in range(len(boxes))]
        return [self._frame(_write_boxes(near)) for near in (moved, grown, boxes * 2, *without)]

    def _read(self, text: str, example: Example | None) -> Parsed:
        references = (self.read_references(example) if example else None) or []
        needs_label = any(box.label for box in references)
        if not self.words:
            rest = inside = _FENCE.sub("", text)
            for _, _, (start, end) in reversed(list(_list_attempts(inside, needs_label=False))):
                rest = rest[:start] + rest[end:]
            if not _BETWEEN.fullmatch(rest):
                return Parsed(None, "there are words beside the boxes")
        boxes, num_malformed = parse_boxes(text, needs_label=needs_label)
        if len(boxes) + num_malformed > _MAX_BOXES:
            return Parsed(None, f"more than {_MAX_BOXES} boxes")
        if num_malformed and not boxes:
            forms = _describe_forms(needs_label=needs_label)
            problem = f"{num_malformed} malformed box(es) and no other; they are read as {forms}"
            return Parsed(None, problem)
        return Parsed(_write_boxes(boxes), value=(*boxes, *[None] * num_malformed))

    def _normalize(self, target: str) -> str:
        """Return boxes in one form; a list of ``[x1, y1, x2, y2, label]`` as JSON is read, too."""
        try:
            boxes = _read_rows(json.loads(target))
        except (ValueError, RecursionError):
            boxes = None
        return _write_boxes(parse_boxes(target, needs_label=False)[0] if boxes is None else boxes)


class BoxIou(AnswerReward):
    """Mean IoU of the predicted and the reference boxes, over the larger number of the two.

    Malformed and reversed boxes count as predictions with IoU 0; a text with nothing but those is
    invalid. ``[x1,y1,x2,y2]`` is malformed where a reference has a label. No box where there is a
    reference earns 0, and where there is none there is nothing to score. A box beyond the reference
    is a wrong one. The fields ``picture_size`` and ``seen_size`` have ``[width, height]`` of the
    original picture and of the picture as the model saw it; without them the two are the same.
    References and sizes that cannot be used raise a RewardError.

    Args:
        parser: finds the boxes; None: a BoxParser that lets words stand beside them.
    """

    name = "box_iou"
    kind: RewardKind = "truth"

    def __init__(self, parser: BoxParser | None = None) -> None:
        self._boxes = parser or BoxParser(words=True)
        super().__init__(self._boxes)
        self._absent = f"no field {self._boxes.boxes}"

    def applies_to(self, example: Example) -> bool:
        # A field may be called label, too; an empty list in it says that there are no boxes.
        return example.fields.get(self._boxes.boxes) is not None

    def _find_problem(self, example: Example) -> str | None:
        self._boxes.read_references(example)

    def _score(self, example: Example, label: str, answer: Parsed) -> Score:
        references = self._boxes.read_references(example)
        boxes = [box for box in answer.value if box is not None]
        if not references:
            return Score(0.0, "a box where there is none") if boxes else Score(None, "no boxes")
        if not boxes:
            forms = _describe_forms(needs_label=any(box.label for box in references))
            return Score(0.0, f"no box; they are read as {forms}")
        num_predicted = len(answer.value)
        num_malformed = num_predicted - len(boxes)
        x, y = _find_scale(example)
        scaled = [box.scale(x, y) for box in boxes]
        overlaps = match_boxes(scaled, references, match_labels=self._boxes.match_labels)
        mean = sum(overlaps) / max(num_predicted, len(references))
        malformed = f", {num_malformed} of them malformed" if num_malformed else ""
        said = f"{num_predicted} boxes{malformed}, {len(references)} expected"
        return Score(min(1.0, mean), f"mean IoU {mean:.3f} of {said}")


def _find_scale(example: Example) -> tuple[float, float]:
    """Return what takes pixels of the seen picture to pixels of the original, by axis."""
    given = [example.fields.get(name) for name in ("picture_size", "seen_size")]
    if None in given:
        return 1.0, 1.0
    sizes = [_read_numbers(size) or [] for size in given]
    for size, numbers in zip(given, sizes, strict=True):
        if len(numbers) != 2 or min(numbers) <= 0:
            raise RewardError(
                f"example {example.id} has a picture size that cannot be used",
                got=repr(size),
                expected="[width, height] in pixels",
            )
    (width, height), (seen_width, seen_height) = sizes
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
