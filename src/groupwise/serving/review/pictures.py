"""Pictures as browsers are sent them."""

import io
from pathlib import Path

from groupwise.core import open_lazily, open_picture


def read_for_browser(path: Path) -> tuple[bytes, str]:
    """Return the content of a picture and its media type.

    A JPEG is sent as it is. Of other kinds browsers show more than policies see, or nothing: moving
    frames, TIFF. They are sent as the PNG of what policies see.
    """
    with open_lazily(path) as opened:
        is_jpeg = opened.format == "JPEG"
    if is_jpeg:
        return path.read_bytes(), "image/jpeg"
    stream = io.BytesIO()
    open_picture(path).save(stream, "PNG", compress_level=1)
    return stream.getvalue(), "image/png"
