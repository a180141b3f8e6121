"""Examples as chat messages of the OpenAI API, with pictures as data URLs."""

import base64
import io
from typing import Any

from PIL import Image

from groupwise.core import DataError, Example, Picture, digest_bytes, open_picture
from groupwise.models import build_messages

_ORIENTATION = 0x0112
_TYPES = {"PNG": "image/png", "JPEG": "image/jpeg", "WEBP": "image/webp"}


def build_chat_messages(example: Example, *, lead: str = "") -> list[dict[str, Any]]:
    """Return the prompt as messages; a lead is the beginning of the assistant's turn.

    Raises:
        DataError: if a picture cannot be read or is no longer the one that the example names.
    """
    messages = build_messages(example, show=_show_as_url)
    if lead:
        messages.append({"role": "assistant", "content": lead})
    return messages


def encode_picture(picture: Picture) -> str:
    """Return a picture as a data URL: its own bytes where every server reads them as we do.

    A picture that has to be turned upright or converted (see ``convert_picture``) becomes a PNG.

    Raises:
        DataError: if it cannot be read, or its bytes are not those of its digest.
    """
    content = read_picture_bytes(picture)
    try:
        with Image.open(io.BytesIO(content)) as opened:
            media_type = _TYPES.get(opened.format or "")
            is_upright = opened.getexif().get(_ORIENTATION, 1) == 1
            is_plain = opened.mode in ("RGB", "L") and not opened.has_transparency_data
    except (OSError, SyntaxError, ValueError) as error:
        raise DataError(f"cannot decode the picture {picture.path} ({error})") from error
    if media_type is None or not (is_upright and is_plain):
        stream = io.BytesIO()
        open_picture(picture).save(stream, format="PNG", compress_level=1)
        content, media_type = stream.getvalue(), "image/png"
    return f"data:{media_type};base64,{base64.b64encode(content).decode()}"


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


def _show_as_url(picture: Picture) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": encode_picture(picture)}}
