"""Pictures on their way to a model: read, decoded within a pixel limit, or as data URLs."""

import base64
import io
from functools import lru_cache

from PIL import Image, ImageOps

from groupwise.core import (
    DataError,
    Example,
    Picture,
    convert_picture,
    digest_bytes,
    open_lazily,
    shows_as_it_is,
    wait_to_decode,
)

_REDUCING_GAP = 2.0
_TYPES = {"PNG": "image/png", "JPEG": "image/jpeg", "WEBP": "image/webp"}


def read_picture_bytes(picture: Picture) -> bytes:
    """Return the bytes of a picture file.

    Raises:
        DataError: if it cannot be read, or its bytes are not those of its digest.
    """
    try:
        content = picture.path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read picture {picture.path} ({error.strerror})") from error
    if digest_bytes(content) != picture.digest:
        raise DataError(
            f"the picture {picture.path} has changed since it was read",
            fix="read the data again",
        )
    return content


def open_limited(picture: Picture, max_pixels: int | None) -> Image.Image:
    """Return a picture as RGB, upright, with at most ``max_pixels`` pixels.

    A picture within the limit is just decoded. A JPEG beyond it is decoded at a half, a quarter or
    an eighth of its size where that is enough. Of pictures that stay large, one at a time is.

    Raises:
        DataError: if it cannot be read or decoded, or is no longer the one that was read.
    """
    with open_lazily(picture.path, read_picture_bytes(picture)) as opened:
        num_pixels = opened.width * opened.height
        size = fit_size(opened.size, max_pixels)
        if size != opened.size:
            opened.draft(None, (int(size[0] * _REDUCING_GAP), int(size[1] * _REDUCING_GAP)))
        if not opened.info.get("progressive"):  # such a JPEG is decoded as a whole
            num_pixels = opened.width * opened.height
        with wait_to_decode(num_pixels):
            return _decode(opened, max_pixels)


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


def fit_size(size: tuple[int, int], max_pixels: int | None) -> tuple[int, int]:
    """Return width and height of the same proportion with at most ``max_pixels`` pixels."""
    width, height = size
    if max_pixels is None or width * height <= max_pixels:
        return size
    scale = (max_pixels / (width * height)) ** 0.5
    width, height = max(1, int(width * scale)), max(1, int(height * scale))
    width = min(width, max_pixels)
    return width, min(height, max_pixels // width)


def measure_example(example: Example, max_pixels: int | None) -> float:
    """Return a number that grows with the tokens of a prompt; for sorting only.

    Pictures are measured by their headers, in units of about a token; unreadable ones are 0.
    """
    num_characters = sum(len(message.text) for message in example.prompt)
    return num_characters / 2 + sum(_count_pixels(p, max_pixels) for p in example.pictures) / 784


@lru_cache(maxsize=65_536)
def _count_pixels(picture: Picture, max_pixels: int | None) -> int:
    try:
        with open_lazily(picture.path) as opened:
            num_pixels = opened.width * opened.height
    except DataError:
        return 0
    return num_pixels if max_pixels is None else min(max_pixels, num_pixels)


def encode_picture(picture: Picture, *, max_pixels: int | None = None) -> str:
    """Return a picture as a data URL: its own bytes where every server reads them as we do.

    A picture that has to be turned upright, converted (see ``convert_picture``) or scaled down to
    ``max_pixels`` becomes a PNG.

    Raises:
        DataError: as ``open_limited``; what is sent as it is, is not decoded.
    """
    content = read_picture_bytes(picture)
    with open_lazily(picture.path, content) as opened:
        media_type = _TYPES.get(opened.format or "")
        is_plain = shows_as_it_is(opened) and opened.size == fit_size(opened.size, max_pixels)
    if media_type is None or not is_plain:
        stream = io.BytesIO()
        open_limited(picture, max_pixels).save(stream, format="PNG", compress_level=1)
        content, media_type = stream.getvalue(), "image/png"
    return f"data:{media_type};base64,{base64.b64encode(content).decode()}"
