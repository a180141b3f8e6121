"""Coordinates of boxes: from pixels of the original picture to what a model reads and writes.

A model sees its picture resized. Qwen2.5-VL counts pixels of the resized picture; Qwen2-VL and
Qwen3-VL count thousandths of its sides. Either way a box is written in a frame: a rectangle of so
many units in width and height that covers the whole picture. ``BoxIou`` takes the frame as
``seen_size`` beside ``picture_size``, the size of the original.

Sizes are width and height; those of pictures are of upright ones, as ``open_picture`` returns them.

Source: https://github.com/QwenLM/Qwen3-VL (issues 866 and 1741, README of Qwen3-VL).
"""

from collections.abc import Callable
from typing import Any, Literal, get_args

from groupwise.core import DataError, ModelError
from groupwise.models.base_model import open_image_processor
from groupwise.rewards import Box

CoordinateForm = Literal["pixels", "thousandths"]
Size = tuple[int, int]

_FORMS: dict[str, CoordinateForm] = {
    "qwen2_vl": "thousandths",
    "qwen2_5_vl": "pixels",
    "qwen3_vl": "thousandths",
}
_THOUSAND = (1000, 1000)
# A label would end at its first bracket, and cannot begin with a comma; labels are compared without
# punctuation.
_NO_BRACKETS = str.maketrans("[]", "()")


def find_coordinate_form(model_type: str) -> CoordinateForm:
    """Return how a type of model (``config.model_type``) writes boxes."""
    form = _FORMS.get(model_type)
    if form is None:
        raise ModelError(
            f"it is not known in what coordinates {model_type} writes boxes",
            expected=" or ".join(_FORMS),
            fix=f"set the form of coordinates: {' or '.join(get_args(CoordinateForm))}",
        )
    return form


def find_seen_size(size: Size, image_processor: Any) -> Size:
    """Return the size to which a Qwen-VL image processor resizes a picture."""
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

    width, height = size
    limits = image_processor.size
    try:
        seen_height, seen_width = smart_resize(
            height,
            width,
            factor=image_processor.patch_size * image_processor.merge_size,
            min_pixels=limits["shortest_edge"],
            max_pixels=limits["longest_edge"],
        )
    except (ValueError, ZeroDivisionError) as error:
        raise DataError(
            "the processor refuses a picture of that shape",
            got=f"{width}x{height} pixels",
            expected="sides of at least 1 pixel, none 200 times the other",
        ) from error
    return seen_width, seen_height


def find_frame(size: Size, *, form: CoordinateForm, image_processor: Any) -> Size:
    """Return the frame in which a model that is shown a picture of ``size`` writes its boxes."""
    seen = find_seen_size(size, image_processor)
    return seen if form == "pixels" else _THOUSAND


def open_frames(base: str, *, max_pixels: int) -> Callable[[Size], Size]:
    """Return what tells the frame of a picture's size, as ``find_frame`` does for a base model."""
    model_type, image_processor = open_image_processor(base, max_pixels=max_pixels)
    form = find_coordinate_form(model_type)
    return lambda size: find_frame(size, form=form, image_processor=image_processor)


def convert_box(box: Box, *, given: Size, wanted: Size) -> Box:
    """Return a box of one frame, or of a picture of that size, in units of another one."""
    return box.scale(wanted[0] / given[0], wanted[1] / given[1])


def write_box(box: Box, *, frame: Size) -> str:
    """Return ``[x1,y1,x2,y2 label]`` in whole units; at least 1 wide and high, within the frame."""
    x1, x2 = _round_sides(box.x1, box.x2, frame[0])
    y1, y2 = _round_sides(box.y1, box.y2, frame[1])
    label = " ".join(box.label.translate(_NO_BRACKETS).split()).lstrip(", ")
    return f"[{x1},{y1},{x2},{y2}{' ' + label if label else ''}]"


def _round_sides(low: float, high: float, end: int) -> tuple[int, int]:
    start = min(max(0, round(low)), end - 1)
    return start, min(max(start + 1, round(high)), end)
