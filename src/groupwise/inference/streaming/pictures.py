"""Pictures within a pixel limit, read so that one huge photo takes little memory."""

import io
import threading
from contextlib import nullcontext

from PIL import Image, ImageOps

from groupwise.core import DataError, Example, Picture, convert_picture
from groupwise.inference.chat_messages import read_picture_bytes

_UNREADABLE = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)
_LARGE_PIXELS = 24_000_000
_REDUCING_GAP = 2.0
_large_pictures = threading.Lock()


def open_limited(picture: Picture, max_pixels: int | None) -> Image.Image:
    """Return a picture as RGB, upright, with at most ``max_pixels`` pixels.

    A picture within the limit is just decoded. A JPEG beyond it is decoded at a half, a quarter or
    an eighth of its size where that is enough. Of pictures that stay large, one at a time is.

    Raises:
        DataError: if it is missing, truncated, no picture, or not the one of its digest.
    """
    content = io.BytesIO(read_picture_bytes(picture))
    try:
        with Image.open(content) as opened:
            num_pixels = _reduce_on_decoding(opened, max_pixels)
            with _large_pictures if num_pixels > _LARGE_PIXELS else nullcontext():
                return _decode(opened, max_pixels)
    except _UNREADABLE as error:
        raise DataError(f"cannot decode the picture {picture.path} ({error})") from error


def measure_example(example: Example, max_pixels: int | None) -> float:
    """Return a number that grows with the tokens of a prompt; for sorting only.

    Pictures are measured by their headers, in units of about a token; unreadable ones are 0.
    """
    num_characters = sum(len(message.text) for message in example.prompt)
    return num_characters / 2 + sum(_count_pixels(p, max_pixels) for p in example.pictures) / 784


def is_beyond(picture: Picture, max_pixels: int | None) -> bool:
    """Say whether a picture has more pixels than allowed; not if it cannot be read."""
    return max_pixels is not None and _count_pixels(picture, None) > max_pixels


def fit_size(size: tuple[int, int], max_pixels: int | None) -> tuple[int, int]:
    """Return width and height of the same proportion with at most ``max_pixels`` pixels."""
    width, height = size
    if max_pixels is None or width * height <= max_pixels:
        return size
    scale = (max_pixels / (width * height)) ** 0.5
    width, height = max(1, int(width * scale)), max(1, int(height * scale))
    width = min(width, max_pixels)
    return width, min(height, max_pixels // width)


def _reduce_on_decoding(opened: Image.Image, max_pixels: int | None) -> int:
    """Let a JPEG be decoded smaller; return the pixels that decoding holds in memory."""
    num_pixels = opened.size[0] * opened.size[1]
    width, height = fit_size(opened.size, max_pixels)
    if (width, height) != opened.size:
        opened.draft(None, (int(width * _REDUCING_GAP), int(height * _REDUCING_GAP)))
    is_whole = bool(opened.info.get("progressive"))
    return num_pixels if is_whole else opened.size[0] * opened.size[1]


def _decode(opened: Image.Image, max_pixels: int | None) -> Image.Image:
    opened.load()
    if opened.mode in ("RGB", "L") and not opened.has_transparency_data:
        _shrink(opened, max_pixels)
    upright = convert_picture(ImageOps.exif_transpose(opened))
    _shrink(upright, max_pixels)
    return upright


def _shrink(picture: Image.Image, max_pixels: int | None) -> None:
    size = fit_size(picture.size, max_pixels)
    if size != picture.size:
        picture.thumbnail(size, Image.Resampling.LANCZOS, reducing_gap=_REDUCING_GAP)


def _count_pixels(picture: Picture, max_pixels: int | None) -> int:
    try:
        with Image.open(picture.path) as opened:
            width, height = opened.size
    except _UNREADABLE:
        return 0
    return width * height if max_pixels is None else min(max_pixels, width * height)
