"""Opening pictures the way every part of the library sees them."""

import io
import threading
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import cast

from PIL import Image, ImageOps, UnidentifiedImageError

from groupwise.core.errors import DataError
from groupwise.core.example import Picture, read_picture
from groupwise.core.picture_pieces import check_pieces

# Pillow knows more formats, one of which it hands to another program, whatever the file is named.
_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")
_ORIENTATION = 0x0112
LARGE_PIXELS = 24_000_000
"""Of pictures with more pixels one at a time is decoded."""
_decoding_large = threading.Lock()


@contextmanager
def open_lazily(path: Path, content: bytes | None = None) -> Generator[Image.Image]:
    """Give a picture of which only the header is read; the block does nothing but decode it.

    It is a JPEG, PNG, WebP, BMP, GIF or TIFF, the first frame of several. Whatever else than a lack
    of memory the block raises is the picture's fault: on damaged files decoders raise anything.

    Args:
        path: of the file.
        content: its bytes, where they are known.

    Raises:
        DataError: if the file is missing, of another kind, or damaged.
    """
    try:
        if content is None and path.exists() and not path.is_file():
            raise DataError(f"the picture {path} is no file")
        _check_file(path) if content is None else check_pieces(content)
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


def _check_file(path: Path) -> None:
    if path.stat().st_size:  # nothing cannot be mapped
        with path.open("rb") as stream, mmap(stream.fileno(), 0, access=ACCESS_READ) as content:
            check_pieces(content)


def wait_to_decode(num_pixels: int) -> AbstractContextManager[object]:
    """Return what is held while so many pixels are decoded: of large pictures one at a time is."""
    return _decoding_large if num_pixels > LARGE_PIXELS else nullcontext()


def open_picture(source: Path | Picture) -> Image.Image:
    """Return a picture as RGB, fully decoded and turned upright by its EXIF orientation.

    Raises:
        DataError: if the file is missing, truncated, not a picture, or of numbers without a range.
    """
    path = source.path if isinstance(source, Picture) else source
    with open_lazily(path) as opened, wait_to_decode(opened.width * opened.height):
        opened.load()
        ImageOps.exif_transpose(opened, in_place=True)  # no second copy of a large one
        return convert_picture(opened)


def shows_as_it_is(opened: Image.Image) -> bool:
    """Whether a picture whose header is read needs no turning upright and no conversion."""
    is_upright = opened.getexif().get(_ORIENTATION, 1) == 1
    return is_upright and opened.mode in ("RGB", "L") and not opened.has_transparency_data


def convert_picture(decoded: Image.Image) -> Image.Image:
    """Return a decoded picture as 8-bit RGB: the one conversion, wherever a picture is used.

    Of 16 bits the high byte is kept, as Pillow does by itself for colours but not for grey, which
    it clips to white. What is transparent shows a white ground.

    Raises:
        ValueError: if its numbers are floats or go beyond 16 bits: which is white is not known.
    """
    if decoded.mode == "F":
        raise ValueError("floats have no range: save it with 8 or 16 bits")
    if decoded.mode.startswith("I"):
        return _keep_high_bytes(decoded).convert("RGB")
    if decoded.has_transparency_data:
        ground = Image.new("RGBA", decoded.size, "white")
        ground.alpha_composite(decoded if decoded.mode == "RGBA" else decoded.convert("RGBA"))
        return ground.convert("RGB")
    return decoded.convert("RGB")


def _keep_high_bytes(decoded: Image.Image) -> Image.Image:
    wide = decoded.convert("I")
    darkest, brightest = cast("tuple[int, int]", wide.getextrema())
    if darkest < 0 or brightest >= 1 << 16:
        raise ValueError("its numbers go beyond 16 bits: save it with 8 or 16 bits")
    grey = wide.point(lambda value: value / 256).convert("L")
    key = decoded.info.get("transparency")
    if isinstance(key, int):
        import numpy as np  # rarely needed, and dear for whoever only reads a config

        is_clear = Image.fromarray(np.where(np.asarray(wide) == key, 255, 0).astype(np.uint8))
        grey.paste(255, (0, 0), is_clear)
    return grey


def store_picture(picture: Picture, path: Path, *, max_pixels: int) -> Picture:
    """Write a picture upright as PNG with at most ``max_pixels`` pixels; return the new one.

    Raises:
        DataError: if the picture cannot be decoded.
    """
    opened = shrink_picture(open_picture(picture), max_pixels)
    path.parent.mkdir(parents=True, exist_ok=True)
    opened.save(path, format="PNG", compress_level=1)
    return read_picture(path)


def shrink_picture(opened: Image.Image, max_pixels: int) -> Image.Image:
    """Return a picture with at most ``max_pixels`` pixels, itself if it has no more."""
    size = _fit_size(opened.size, max_pixels)
    if size == opened.size:
        return opened
    return opened.resize(size, Image.Resampling.LANCZOS, reducing_gap=3.0)


def _fit_size(size: tuple[int, int], max_pixels: int) -> tuple[int, int]:
    """Return width and height of about the same proportion with at most ``max_pixels`` pixels."""
    width, height = size
    if width * height <= max_pixels:
        return size
    scale = (max_pixels / (width * height)) ** 0.5
    width, height = max(1, int(width * scale)), max(1, int(height * scale))
    width = min(width, max_pixels)
    return width, min(height, max_pixels // width)
