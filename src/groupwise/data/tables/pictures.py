"""Pictures that rows name or hold: each is decoded whole once, which is what finds torn files."""

import struct
import warnings
import zlib
from io import BytesIO
from pathlib import Path

from PIL import Image, ImageOps

from groupwise.core import Picture, digest_bytes, digest_file

# What Pillow's decoders are known to raise on damaged files.
_UNDECODABLE = (
    OSError,
    SyntaxError,
    ValueError,
    EOFError,
    ArithmeticError,
    LookupError,
    TypeError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
)


class UnusableRowError(Exception):
    """Carries reason and detail from the reading of one row to the drop log."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.detail = detail


def decode_picture(path: Path) -> tuple[Picture, int, int]:
    """Return a picture file with its width and height as shown, in pixels.

    Raises:
        UnusableRowError: if it is missing or no picture.
    """
    try:
        if path.exists() and not path.is_file():
            raise UnusableRowError("unreadable picture", f"{path.name}: not a file")
        content = path.read_bytes()
    except FileNotFoundError:
        raise UnusableRowError("missing picture", path.name) from None
    except (OSError, ValueError) as error:
        raise UnusableRowError("unreadable picture", f"{path.name}: {error}") from None
    width, height, _ = _decode(content, path.name)
    return Picture(path, digest_bytes(content)), width, height


def digest_picture(path: Path) -> str | None:
    """Return the digest of a file; None: a row that names it is dropped."""
    try:
        return digest_file(path) if path.is_file() else None
    except OSError:
        return None


def store_bytes(content: bytes, folder: Path) -> Picture:
    """Write a picture that a row holds into a folder, named after its digest.

    Raises:
        UnusableRowError: if it is no picture.
    """
    _, _, kind = _decode(content, "bytes")
    digest = digest_bytes(content)
    path = folder / f"{digest}.{kind.lower()}"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return Picture(path, digest)


def _decode(content: bytes, name: str) -> tuple[int, int, str]:
    """Return width and height as shown, and the kind of file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(BytesIO(content)) as image:
                return *ImageOps.exif_transpose(image).size, image.format or "picture"
    except _UNDECODABLE as error:
        raise UnusableRowError("unreadable picture", f"{name}: {error}") from None
