"""The pictures of served answers: files named by the digest of their content."""

import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from PIL import ImageDraw
from PIL.PngImagePlugin import PngInfo

from groupwise.core import DataError, digest_bytes, open_lazily, open_picture, replace_file

Box = tuple[int, int, int, int]
"""Left, top, right, bottom in pixels of a picture as shown; right and bottom are outside."""


_NOTE = "Groupwise"
"""Name of the text in a PNG that says what was done to the picture."""


class PictureFolder:
    """A folder of pictures; a picture is there as a whole or not at all.

    Args:
        folder: it is made, and its owner's alone.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        self.folder = folder

    def keep(self, content: bytes) -> str:
        """Store a picture and return its name, its digest."""
        name = digest_bytes(content)
        if self.find(name) is None:
            replace_file(self.folder / name, [content])
            (self.folder / name).chmod(0o600)
        return name

    def find(self, name: str) -> Path | None:
        """Return the file of a picture; None if it was deleted."""
        path = self.folder / name
        return path if path.is_file() else None

    def black_out(self, name: str, boxes: Sequence[Box]) -> str:
        """Store a copy of a picture with black regions and return its name.

        Raises:
            DataError: if the picture was deleted, or a box is empty or not inside it.
        """
        path = self.find(name)
        if path is None:
            raise DataError(f"the picture {name} was deleted")
        picture = open_picture(path)
        draw = ImageDraw.Draw(picture)
        for left, top, right, bottom in boxes:
            if not (0 <= left < right <= picture.width and 0 <= top < bottom <= picture.height):
                size = f"{picture.width} x {picture.height}"
                raise DataError(f"the box {left, top, right, bottom} is not in a picture of {size}")
            draw.rectangle((left, top, right - 1, bottom - 1), fill="black")
        stream, note = io.BytesIO(), PngInfo()
        note.add_text(_NOTE, "blacked out")
        picture.save(stream, "PNG", pnginfo=note)
        return self.keep(stream.getvalue())

    def is_blacked_out(self, name: str) -> bool:
        """Return whether a picture that is there has regions that ``black_out`` made black.

        Raises:
            DataError: if it cannot be opened.
        """
        with open_lazily(self.folder / name) as picture:
            return picture.info.get(_NOTE) == "blacked out"

    def delete(self, name: str) -> None:
        """Delete a picture, if it is there."""
        (self.folder / name).unlink(missing_ok=True)

    def delete_others(self, kept: Iterable[str]) -> int:
        """Delete all pictures but these, and return how many."""
        names = set(kept)
        gone = [path for path in self.folder.iterdir() if path.name not in names]
        for path in gone:
            path.unlink(missing_ok=True)
        return len(gone)
