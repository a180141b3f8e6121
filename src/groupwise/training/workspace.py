"""Where a training writes and which seed it follows."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Workspace:
    """The folder and the seed of one training.

    Attributes:
        folder: takes ``metrics.jsonl`` and the checkpoints; whole checkpoints found there are
            continued.
        seed: of the order of rows, of sampling and of new weights.
    """

    folder: Path
    seed: int

    @property
    def metrics(self) -> Path:
        """One row per logged step."""
        return self.folder / "metrics.jsonl"
