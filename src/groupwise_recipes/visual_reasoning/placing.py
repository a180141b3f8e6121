"""Where the boxes of a row are in the picture that a model is shown."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

from groupwise.core import DataError, open_lazily
from groupwise_recipes.visual_reasoning.boxes import Size, open_frames
from groupwise_recipes.visual_reasoning.config import VisualConfig
from groupwise_recipes.visual_reasoning.rows import RowError, VisualRow

FindFrame = Callable[[Size], Size]
"""Returns the frame in which a model that is shown a picture of some size writes boxes."""
_ORIENTATION, _TURNED = 0x0112, (5, 6, 7, 8)


def find_frames(config: VisualConfig) -> FindFrame:
    """Return what finds frames; the base is looked at when there are boxes."""
    opened = cache(lambda: open_frames(config.model.base, max_pixels=config.model.max_pixels))
    return lambda size: opened()(size)


def find_row_frame(row: VisualRow, find_frame: FindFrame) -> Size | None:
    """Return the frame of the boxes of a row with a picture; None if it has none.

    Raises:
        RowError: if its boxes cannot be put into the picture.
    """
    if not row.boxes or row.picture is None or row.picture_size is None:
        return None
    size = _read_size(row.picture)
    (width, height), (told_width, told_height) = size, row.picture_size
    # A copy of another size will do; what was cut or turned has its things elsewhere.
    if abs(width * told_height - height * told_width) > max(*size, *row.picture_size):
        what = f"the picture {row.picture} has not the shape that its boxes were drawn in"
        raise RowError("picture of another shape", what, got=size, expected=row.picture_size)
    try:
        return find_frame(size)
    except DataError as fault:
        raise RowError("picture of a refused shape", f"{row.picture}: {fault}") from fault


def _read_size(path: Path) -> Size:
    """Return width and height of an upright picture, which is not decoded."""
    with open_lazily(path) as opened:
        width, height = opened.size
        is_turned = opened.getexif().get(_ORIENTATION) in _TURNED
    return (height, width) if is_turned else (width, height)
