"""Where a path leads: what somebody else wrote into a file may name any file of this machine."""

from pathlib import Path


def is_below(path: Path, folder: Path) -> bool:
    """Return whether a path leads into a folder, with links followed; False where nobody can say.

    Args:
        path: a file, which need not exist.
        folder: that it is to be in.
    """
    try:
        return path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError, ValueError):  # too long, a circle of links, a zero byte
        return False
