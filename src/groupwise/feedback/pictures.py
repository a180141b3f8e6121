"""The pictures of served answers: files named by the digest of their content."""

from collections.abc import Iterable
from pathlib import Path

from groupwise.core import digest_bytes, replace_file


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
