"""What is shown beside the picture: its depth picture, and the reference boxes in words."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from PIL import Image

from groupwise.core import Picture, open_lazily, read_picture
from groupwise_recipes.visual_reasoning.boxes import Size, convert_box, write_box
from groupwise_recipes.visual_reasoning.config import ExtraInput
from groupwise_recipes.visual_reasoning.rows import RowError, VisualRow


def prepare_inputs(row: VisualRow, inputs: Collection[ExtraInput], folder: Path) -> VisualRow:
    """Return a row whose extra inputs can be shown.

    Args:
        row: with a picture.
        inputs: that are shown.
        folder: for depth pictures of floats or of 16 or 32 bits, whose range is stretched to 8
            bits: models that take pictures take no other ones.

    Raises:
        RowError: if an input is not there.
    """
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
