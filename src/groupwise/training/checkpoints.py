"""Checkpoints that count only when they are whole."""

import shutil
from pathlib import Path

_MARKER = "complete"


def mark_complete(checkpoint: Path) -> None:
    """Mark a checkpoint as fully written."""
    (checkpoint / _MARKER).touch()


def find_last_checkpoint(folder: Path) -> Path | None:
    """Return the newest whole checkpoint; ones torn by a crash are removed."""
    found: list[Path] = []
    for path in folder.glob("checkpoint-*"):
        if (path / _MARKER).exists():
            found.append(path)
        else:
            shutil.rmtree(path)
    return max(found, key=read_step, default=None)


def read_step(checkpoint: Path) -> int:
    """Return the number of finished steps from a checkpoint's name."""
    return int(checkpoint.name.rsplit("-", 1)[1])


def remove_checkpoints(folder: Path) -> None:
    """Remove all checkpoints of a finished training."""
    for path in folder.glob("checkpoint-*"):
        shutil.rmtree(path)
