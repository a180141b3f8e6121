"""Opening pictures the way every part of the library sees them."""

import io
import re
import struct
import threading
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from itertools import islice, repeat
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import TYPE_CHECKING, cast

from groupwise.core.errors import DataError
from groupwise.core.types import Picture, read_picture

if TYPE_CHECKING:
    from PIL import Image

# Pillow knows more formats, one of which it hands to another program, whatever the file is named.
_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")
_ORIENTATION = 0x0112
LARGE_PIXELS = 24_000_000
"""Of pictures with more pixels one at a time is decoded."""
_decoding_large = threading.Lock()
# Each piece of a file costs time and memory, however small it is, and a limit of pixels does not
# bound them: a JPEG of a megabyte has room for 25,000 passes over all of its pixels, and Pillow
# keeps an object for each tile of a TIFF.
_NUM_FREE = 10_000
_PIECE_BYTES = 4096
_MAX_SCANS = 100
_JPEG_MARKER = re.compile(rb"\xff[^\x00\x01\xd0-\xd7\xff]")
_JPEG_END, _JPEG_SCAN = 0xD9, 0xDA
_GIF_EXTENSION = 0x21
_TIFF_OFFSETS = (273, 324)  # of strips and of tiles


@contextmanager
def open_lazily(path: Path, content: bytes | None = None) -> "Generator[Image.Image]":
    """Give a picture of which only the header is read; the block does nothing but decode it.

    It is a JPEG, PNG, WebP, BMP, GIF or TIFF, the first frame of several. Whatever else than a lack
    of memory the block raises is the picture's fault: on damaged files decoders raise anything.

    Args:
        path: of the file.
        content: its bytes, where they are known.

    Raises:
        DataError: if the file is missing, of another kind, or damaged.
    """
    from PIL import Image, UnidentifiedImageError  # not for whoever only reads a config

    try:
        if content is None and path.exists() and not path.is_file():
            raise DataError(f"the picture {path} is no file")
        if content is not None:
            _check_pieces(content)
        elif path.stat().st_size:  # nothing cannot be mapped
            with path.open("rb") as stream, mmap(stream.fileno(), 0, access=ACCESS_READ) as mapped:
                _check_pieces(mapped)
        source = path if content is None else io.BytesIO(content)
        with Image.open(source, formats=_FORMATS) as opened:
            yield opened
    except (DataError, MemoryError):
        raise
    except FileNotFoundError as error:
        raise DataError(f"the picture {path} does not exist") from error
    except UnidentifiedImageError as error:
        what = "it is no whole JPEG, PNG, WebP, BMP, GIF or TIFF"
        raise DataError(f"cannot decode the picture {path} ({what})") from error
    except Exception as error:
        raise DataError(f"cannot decode the picture {path} ({error})") from error


def wait_to_decode(num_pixels: int) -> AbstractContextManager[object]:
    """Return what is held while so many pixels are decoded: of large pictures one at a time is."""
    return _decoding_large if num_pixels > LARGE_PIXELS else nullcontext()


def open_picture(source: Path | Picture) -> "Image.Image":
    """Return a picture as RGB, fully decoded and turned upright by its EXIF orientation.

    Raises:
        DataError: if the file is missing, truncated, not a picture, or of numbers without a range.
    """
    from PIL import ImageOps

    path = source.path if isinstance(source, Picture) else source
    with open_lazily(path) as opened, wait_to_decode(opened.width * opened.height):
        opened.load()
        ImageOps.exif_transpose(opened, in_place=True)  # no second copy of a large one
        return convert_picture(opened)


def shows_as_it_is(opened: "Image.Image") -> bool:
    """Whether a picture whose header is read needs no turning upright and no conversion."""
    is_upright = opened.getexif().get(_ORIENTATION, 1) == 1
    return is_upright and opened.mode in ("RGB", "L") and not opened.has_transparency_data


def convert_picture(decoded: "Image.Image") -> "Image.Image":
    """Return a decoded picture as 8-bit RGB: the one conversion, wherever a picture is used.

    Of 16 bits the high byte is kept, as Pillow does by itself for colours but not for grey, which
    it clips to white. What is transparent shows a white ground.

    Raises:
        ValueError: if its numbers are floats or go beyond 16 bits: which is white is not known.
    """
    from PIL import Image

    if decoded.mode == "F":
        raise ValueError("floats have no range: save it with 8 or 16 bits")
    if decoded.mode.startswith("I"):
        wide = decoded.convert("I")
        darkest, brightest = cast("tuple[int, int]", wide.getextrema())
        if darkest < 0 or brightest >= 1 << 16:
            raise ValueError("its numbers go beyond 16 bits: save it with 8 or 16 bits")
        grey = wide.point(lambda value: value / 256).convert("L")
        key = decoded.info.get("transparency")
        if isinstance(key, int):
            import numpy as np

            is_clear = np.where(np.asarray(wide) == key, 255, 0).astype(np.uint8)
            grey.paste(255, (0, 0), Image.fromarray(is_clear))
        return grey.convert("RGB")
    if decoded.has_transparency_data:
        ground = Image.new("RGBA", decoded.size, "white")
        ground.alpha_composite(decoded if decoded.mode == "RGBA" else decoded.convert("RGBA"))
        return ground.convert("RGB")
    return decoded.convert("RGB")


def store_picture(picture: Picture, path: Path, *, max_pixels: int) -> Picture:
    """Write a picture upright as PNG with at most ``max_pixels`` pixels; return the new one.

    Raises:
        DataError: if the picture cannot be decoded.
    """
    from PIL import Image

    opened = open_picture(picture)
    width, height = opened.size
    if width * height > max_pixels:
        scale = (max_pixels / (width * height)) ** 0.5
        width = min(max(1, int(width * scale)), max_pixels)
        height = min(max(1, int(height * scale)), max_pixels // width)
        opened = opened.resize((width, height), Image.Resampling.LANCZOS, reducing_gap=3.0)
    path.parent.mkdir(parents=True, exist_ok=True)
    opened.save(path, format="PNG", compress_level=1)
    return read_picture(path)


def _check_pieces(content: bytes | mmap) -> None:
    """Refuse a file of too many pieces, whatever is wrong with it otherwise."""
    most = _NUM_FREE + len(content) // _PIECE_BYTES
    kinds = {b"\xff\xd8": _list_jpeg, b"\x89P": _list_png, b"GI": _list_gif}
    kinds |= {b"II": _list_tiff, b"MM": _list_tiff}
    list_pieces = kinds.get(content[:2])
    found: list[int] = []
    with suppress(IndexError, struct.error):  # a broken file ends early
        found.extend(islice(list_pieces(content) if list_pieces else (), most + 1))
    if found.count(_JPEG_SCAN) > _MAX_SCANS:
        raise ValueError(f"it passes over its pixels more than {_MAX_SCANS} times")
    if len(found) > most:
        raise ValueError(f"it is made of more than {most} pieces")


def _list_jpeg(content: bytes | mmap) -> Iterator[int]:
    """Give the marker of each piece."""
    at = 2
    while (found := _JPEG_MARKER.search(content, at)) is not None:
        marker = content[found.end() - 1]
        if marker == _JPEG_END:
            return
        yield marker
        at = found.end() + struct.unpack_from(">H", content, found.end())[0]


def _list_png(content: bytes | mmap) -> Iterator[int]:
    at = 8
    while at < len(content) and content[at + 4 : at + 8] != b"IEND":
        yield 0
        at += 12 + struct.unpack_from(">I", content, at)[0]


def _list_gif(content: bytes | mmap) -> Iterator[int]:
    """Give the blocks before the first frame."""
    flags = content[10]
    at = 13 + (3 << (flags & 7) + 1 if flags & 128 else 0)
    while content[at] == _GIF_EXTENSION:
        at += 2
        while content[at]:
            yield 0
            at += 1 + content[at]
        at += 1


def _list_tiff(content: bytes | mmap) -> Iterator[int]:
    """Give the tags of the first page, and its strips or tiles."""
    order = "<" if content[:1] == b"I" else ">"
    is_big = content[2] == 43
    start, head, tag = ("8xQ", "Q", "HHQ8x") if is_big else ("4xL", "H", "HHL4x")
    (at,) = struct.unpack_from(order + start, content)
    (num_tags,) = struct.unpack_from(order + head, content, at)
    at += struct.calcsize(order + head)
    for _ in range(num_tags):
        name, _, num_values = struct.unpack_from(order + tag, content, at)
        yield from repeat(0, num_values if name in _TIFF_OFFSETS else 1)
        at += struct.calcsize(order + tag)
