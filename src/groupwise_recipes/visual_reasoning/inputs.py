"""What is shown of a row: the picture, its depth picture, and the boxes as the model sees them."""

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import cache
from pathlib import Path

from PIL import Image

from groupwise.core import DataError, Picture, open_lazily, read_picture
from groupwise_recipes.visual_reasoning.boxes import Size, convert_box, open_frames, write_box
from groupwise_recipes.visual_reasoning.config import ExtraInput, VisualConfig
from groupwise_recipes.visual_reasoning.rows import RowError, VisualRow

FindFrame = Callable[[Size], Size]
"""Returns the frame in which a model that is shown a picture of some size writes boxes."""
_ORIENTATION, _TURNED = 0x0112, (5, 6, 7, 8)


def prepare_inputs(row: VisualRow, inputs: Collection[ExtraInput], folder: Path) -> VisualRow:
    """Return a row whose extra inputs can be shown."""
    if "boxes" in inputs and not row.boxes:
        raise RowError("no boxes to show", f"row {row.id!r} has no boxes")
    if "depth" not in inputs:
        return row
    if row.depth is None:
        raise RowError("no depth picture", f"row {row.id!r} has no depth picture")
    return replace(row, depth=_store_bytes(row.depth, folder))


def list_pictures(row: VisualRow, inputs: Collection[ExtraInput]) -> list[Picture]:
    """Return the pictures of a row, the depth picture behind the other."""
    paths = (row.picture, row.depth if "depth" in inputs else None)
    return [read_picture(path) for path in paths if path is not None]


def write_places(row: VisualRow, inputs: Collection[ExtraInput], frame: Size | None) -> str:
    """Return the reference boxes as a line of their own, as the model counts; empty without."""
    if "boxes" not in inputs or frame is None or row.picture_size is None:
        return ""
    boxes = [convert_box(box, given=row.picture_size, wanted=frame) for box in row.boxes or ()]
    return "\n" + " ".join(write_box(box, frame=frame) for box in boxes)


def _store_bytes(path: Path, folder: Path) -> Path:
    import numpy as np

    with open_lazily(path) as opened:
        if not opened.mode.startswith(("F", "I")):
            return path
        values = np.nan_to_num(np.asarray(opened, dtype=np.float64), posinf=0, neginf=0)
    span = float(values.max() - values.min()) or 1.0
    stretched = np.rint((values - values.min()) / span * 255).astype(np.uint8)
    stored = folder / f"{read_picture(path).digest}.png"
    folder.mkdir(parents=True, exist_ok=True)
    Image.fromarray(stretched).save(stored)
    return stored


def find_frames(config: VisualConfig) -> FindFrame:
    """Return what finds frames; the base is looked at when there are boxes."""
    opened = cache(lambda: open_frames(config.model.base, max_pixels=config.model.max_pixels))
    return lambda size: opened()(size)


def find_row_frame(row: VisualRow, find_frame: FindFrame) -> Size | None:
    """Return the frame of the boxes of a row with a picture; None if it has none."""
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
