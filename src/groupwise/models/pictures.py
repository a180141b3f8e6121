"""Opening pictures the way every part of the library sees them."""

from pathlib import Path

from PIL import Image, ImageOps

from groupwise.core import DataError, Picture

_UNREADABLE = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)


def open_picture(source: Path | Picture) -> Image.Image:
    """Return a picture as RGB, fully decoded and turned upright by its EXIF orientation.

    Raises:
        DataError: if the file is missing, truncated or not a picture.
    """
    path = source.path if isinstance(source, Picture) else source
    try:
        with Image.open(path) as opened:
            opened.load()
            upright = ImageOps.exif_transpose(opened)
    except FileNotFoundError as error:
        raise DataError(f"the picture {path} does not exist") from error
    except _UNREADABLE as error:
        raise DataError(f"cannot decode the picture {path} ({error})") from error
    return upright.convert("RGB")
