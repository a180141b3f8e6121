"""A small file is not made of so many pieces that opening it takes minutes or gigabytes."""

import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from groupwise.core import DataError, open_picture

EMPTY_PNG_CHUNK = bytes(4) + b"abCd" + struct.pack(">I", zlib.crc32(b"abCd"))


def draw(form: str, **given: object) -> bytes:
    stream = io.BytesIO()
    Image.effect_noise((48, 32), 60).convert("P" if form == "GIF" else "RGB").save(
        stream, form, **given
    )
    return stream.getvalue()


def put_in(content: bytes, place: int, pieces: bytes) -> bytes:
    return content[:place] + pieces + content[place:]


def write_tiles(number: int, *, is_big: bool = False) -> bytes:
    """Return a TIFF, or BigTIFF, of grey points, each a tile."""
    first, count, tag, offset = b"II*\0\x08\0\0\0", "<H", "<HHII", "<I"
    if is_big:
        first, count, tag, offset = b"II+\0\x08\0\0\0\x10" + bytes(7), "<Q", "<HHQQ", "<Q"
    kind = 16 if is_big else 4
    values = {256: number, 257: 1, 258: 8, 259: 1, 262: 1, 277: 1, 322: 1, 323: 1}
    end = len(first) + struct.calcsize(count) + 9 * struct.calcsize(tag) + 8
    tags = [struct.pack(tag, name, kind, 1, value) for name, value in values.items()]
    tags.append(struct.pack(tag, 324, kind, number, end))
    table = struct.pack(count, len(tags)) + b"".join(tags) + bytes(8)
    return first + table + struct.pack(offset, 8) * number


def repeat_scan(times: int) -> bytes:
    head, mark, scan = draw("JPEG", progressive=True).rpartition(b"\xff\xda")
    return head + mark + scan[:-2] + (mark + scan[:-2]) * times + scan[-2:]


IN_PIECES: dict[str, Callable[[int], bytes]] = {
    "passes of a JPEG": lambda number: repeat_scan(number // 128),
    "segments of a JPEG": lambda number: put_in(draw("JPEG"), 2, b"\xff\xe5\0\2" * number),
    "chunks of a PNG": lambda number: put_in(draw("PNG"), 33, EMPTY_PNG_CHUNK * number),
    "notes of a GIF": lambda number: put_in(
        draw("GIF"), 13 + 768, b"\x21\xfe" + b"\1a" * number + b"\0"
    ),
    "tiles of a TIFF": write_tiles,
    "tiles of a BigTIFF": lambda number: write_tiles(number, is_big=True),
}


@pytest.mark.parametrize("make", IN_PIECES.values(), ids=IN_PIECES)
def test_a_file_in_too_many_pieces_is_refused(tmp_path: Path, make: Callable[[int], bytes]) -> None:
    (tmp_path / "some").write_bytes(make(5_000))
    (tmp_path / "many").write_bytes(make(20_000))
    assert open_picture(tmp_path / "some").mode == "RGB"
    with pytest.raises(DataError, match=r"it (is made of|passes over its pixels) more than"):
        open_picture(tmp_path / "many")


@pytest.mark.parametrize("form", ["JPEG", "PNG", "GIF", "TIFF"])
def test_what_follows_a_picture_does_not_count(tmp_path: Path, form: str) -> None:
    tail = bytes(200_000) + b"\xff\xda" * 200
    (tmp_path / "padded").write_bytes(draw(form) + tail)
    assert open_picture(tmp_path / "padded").size == (48, 32)
