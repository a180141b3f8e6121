"""Odd pictures: each is opened as it looks, or refused in one sentence."""

import io
import os
from pathlib import Path
from typing import Any

import pytest
from corpora import each_row
from PIL import Image

from groupwise.core import DataError, open_picture

Row = dict[str, Any]


@each_row("pictures")
def test_a_picture_is_opened_or_refused(row: Row, tmp_path: Path) -> None:
    path = tmp_path / row.get("file", "a.png")
    if row.get("kind") == "folder":
        path.mkdir()
    elif row.get("kind") == "pipe":
        os.mkfifo(path)
    elif not row.get("is_missing"):
        path.write_bytes(draw(row))
    if row["expected"] == "refused":
        with pytest.raises(DataError) as refused:
            open_picture(path)
        assert row["says"] in str(refused.value), row["why"]
        assert "\n" not in str(refused.value)
        return
    opened = open_picture(path)
    assert opened.mode == "RGB"
    size = row.get("opened_size", row.get("size", [12, 8]))
    assert [*opened.size] == size, row["why"]
    for found, wanted in zip(opened.getpixel((0, 0)), row.get("colour", []), strict=False):
        assert abs(found - wanted) < 60, row["why"]


def draw(row: Row) -> bytes:
    """Return the file of a red picture, or what stands in its place."""
    if "content" in row:
        return row["content"].encode()
    named: Row = {}
    if "orientation" in row:
        named["exif"] = exif = Image.Exif()
        exif[0x0112] = row["orientation"]
    picture = Image.new("RGB", tuple(row.get("size", [12, 8])), "red")
    if "cut" in row:
        picture = Image.effect_noise(picture.size, 50).convert("RGB")
    stream = io.BytesIO()
    picture.convert(row["mode"]).save(stream, row["format"], **named)
    content, cut = stream.getvalue(), row.get("cut")
    return content[: int(len(content) * cut) if cut == 0.5 else cut]
