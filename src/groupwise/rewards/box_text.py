r"""Boxes as models write them, in pixels, x to the right and y down, the upper left corner first.

- ``[x1,y1,x2,y2 label]``, also ``[x1,y1,x2,y2]``, in a list or not;
- ``{"bbox_2d": [x1,y1,x2,y2], "label": "…"}``, one or a list of them, fenced or not: Qwen2.5-VL and
  later; the label may be left out;
- ``(x1,y1),(x2,y2)``: Qwen-VL and Qwen2-VL.

Source: https://github.com/QwenLM/Qwen3-VL (cookbooks/2d_grounding.ipynb) for the second form and
Bai et al. 2023 (arXiv:2308.12966) for the third.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from groupwise.core import RewardError
from groupwise.rewards.fields import read_list, read_mapping

MAX_BOXES = 100

_LARGEST = 1_000_000
_NUMBER = r"(\d{1,6}(?:\.\d{1,6})?)"
_SIDES = r"\s*,\s*".join([_NUMBER] * 4)
_LABEL = r'(?:\s+|\s*,\s+|\s*,(?="))([^\s,].*)'
_WITH_LABEL = re.compile(_SIDES + _LABEL, re.DOTALL)
_ANY = re.compile(f"{_SIDES}(?:{_LABEL})?", re.DOTALL)
_CORNERS = re.compile(
    rf"\(\s*{_NUMBER}\s*,\s*{_NUMBER}\s*\)\s*,\s*\(\s*{_NUMBER}\s*,\s*{_NUMBER}\s*\)"
)
_POINT = r"\(\s*[-+]?\.?\d[\d.]*\s*,[-+.\d\s,]*\)"
_ATTEMPT = re.compile(
    r"""(?P<object>\{(?=(?:[^{}"]|"[^"\n]*")*?["']?bbox_2d))"""
    rf"|(?P<corners>{_POINT}(?:\s*,\s*{_POINT})+)"
    r"|(?P<bracket>\[(?=\s*[-+]?\.?\d)([^\[\]]*)(\]?))"
)
_TORN_OBJECT = re.compile(r"\{[^{}]*bbox_2d[^{}]*\}?")
_FENCE = re.compile(r"^\s*```(?:json)?[ \t]*\n|\n[ \t]*```\s*$")
_BETWEEN = re.compile(r"[\s,;，；、\[\]]*")
_JSON = json.JSONDecoder(object_pairs_hook=lambda pairs: _refuse_repeated(pairs))


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle with x1 < x2 and y1 < y2, in pixels, and what is in it."""

    x1: float
    y1: float
    x2: float
    y2: float
    label: str = ""

    def __post_init__(self) -> None:
        """Refuse a box without an area."""
        if not (self.x1 < self.x2 and self.y1 < self.y2):
            raise RewardError(
                "a box has no area",
                got=[self.x1, self.y1, self.x2, self.y2],
                expected="x1 < x2 and y1 < y2",
            )

    def scale(self, x: float, y: float) -> "Box":
        """Return the box with its sides scaled."""
        return Box(self.x1 * x, self.y1 * y, self.x2 * x, self.y2 * y, self.label)


def parse_boxes(text: str, *, needs_label: bool = True) -> tuple[list[Box], int]:
    """Return the boxes in a text and the number of malformed ones.

    A bracket that begins with a number is meant as a box, and so are an object with ``bbox_2d``
    and points in a row; other brackets are text. Boxes in more than one form are all malformed:
    whether one is another one again cannot be told. Nothing is read beyond the first box too many.

    Args:
        text: of a completion.
        needs_label: whether ``[x1,y1,x2,y2]`` without a label is malformed.
    """
    attempts = list(islice(_list_attempts(text, needs_label=needs_label), MAX_BOXES + 1))
    boxes = [box for _, box, _ in attempts if box is not None]
    if len({form for form, box, _ in attempts if box is not None}) > 1:
        boxes = []
    return boxes, len(attempts) - len(boxes)


def has_words(text: str) -> bool:
    """Return whether a text has more than boxes, lists of them and a fence around all."""
    inside = _FENCE.sub("", text)
    end, others = 0, ""
    for _, _, span in _list_attempts(inside, needs_label=False):
        others += inside[end : span[0]]
        end = span[1]
    return _BETWEEN.fullmatch(others + inside[end:]) is None


def describe_forms(*, needs_label: bool) -> str:
    """Return the forms in which boxes are read, as one phrase."""
    if needs_label:
        return '[x1,y1,x2,y2 label] or {"bbox_2d": [x1,y1,x2,y2], "label": "label"}'
    return '[x1,y1,x2,y2], {"bbox_2d": [x1,y1,x2,y2]} or (x1,y1),(x2,y2)'


def _list_attempts(
    text: str, *, needs_label: bool
) -> Iterator[tuple[str, Box | None, tuple[int, int]]]:
    """Yield form, box and place of everything that is meant as one; no box if it is malformed."""
    position = 0
    while match := _ATTEMPT.search(text, position):
        position = match.end()
        if match["object"]:
            is_attempt, box, position = _read_object(text, match.start())
            if is_attempt:
                yield "object", box, (match.start(), position)
        elif match["corners"]:
            yield "corners", _make_box(_CORNERS.fullmatch(match["corners"])), match.span()
        else:
            inner, end = match[4], match[5]
            form = _WITH_LABEL if needs_label else _ANY
            box = _make_box(form.fullmatch(inner.strip()) if end else None)
            yield "bracket", box, match.span()


def _make_box(match: re.Match[str] | None) -> Box | None:
    if match is None:
        return None
    x1, y1, x2, y2 = map(float, match.groups()[:4])
    label = next((group for group in match.groups()[4:] if group), "")
    return Box(x1, y1, x2, y2, label) if x1 < x2 and y1 < y2 else None


def _read_object(text: str, start: int) -> tuple[bool, Box | None, int]:
    """Return whether the object at ``start`` is meant as a box, the box, and where to read on."""
    try:
        value, end = _JSON.raw_decode(text, start)
    except (ValueError, RecursionError):
        torn = _TORN_OBJECT.match(text, start)
        return torn is not None, None, torn.end() if torn else start + 1
    fields = read_mapping(value) or {}
    if "bbox_2d" not in fields:
        return False, None, start + 1
    given = read_list(fields["bbox_2d"]) or ()
    label = fields.get("label", "")
    sides = [float(x) for x in given if isinstance(x, int | float) and not isinstance(x, bool)]
    if not (len(sides) == len(given) == 4 and isinstance(label, str)):
        return True, None, end
    x1, y1, x2, y2 = sides
    is_valid = 0 <= x1 < x2 < _LARGEST and 0 <= y1 < y2 < _LARGEST
    return True, Box(x1, y1, x2, y2, label) if is_valid else None, end


def _refuse_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key appears twice")
    return dict(pairs)
