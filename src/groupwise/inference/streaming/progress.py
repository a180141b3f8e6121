"""How far a stream of groups is, how fast it goes and how long it will take."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from groupwise.core import ProgressLine, Say


@dataclass(frozen=True, slots=True)
class StreamProgress:
    """Counts of a stream at one moment.

    Attributes:
        num_items: answered or failed.
        num_failures: among them.
        num_groups: complete.
        total_items: of the whole stream; None where it is not known.
        elapsed_s: since the stream began.
    """

    num_items: int
    num_failures: int
    num_groups: int
    total_items: int | None
    elapsed_s: float

    @property
    def items_per_s(self) -> float:
        """Mean rate; 0 before the first item."""
        return self.num_items / self.elapsed_s if self.num_items and self.elapsed_s > 0 else 0.0

    def describe(self) -> str:
        """Return groups, failures and rate, for a person."""
        failed = f"{self.num_failures} failed, " if self.num_failures else ""
        return f"{self.num_groups} groups, {failed}{self.items_per_s:.1f}/s"


class StreamLine:
    """Says how far a stream is, every few seconds and at its end.

    Args:
        say: who is told.
    """

    def __init__(self, say: Say) -> None:
        self._line = ProgressLine("items", say)

    def __call__(self, progress: StreamProgress) -> None:
        """Take the counts after an item."""
        self._line(progress.num_items, progress.total_items, progress.describe())


ReportStream = Callable[[StreamProgress], None]
"""Called after every item, in the thread that takes the groups."""


@dataclass
class ProgressCount:
    """Counts and tells.

    Args:
        report: who is told, if anybody.
        total_items: of the whole stream, if known.
    """

    report: ReportStream | None
    total_items: int | None
    num_items: int = 0
    num_failures: int = 0
    num_groups: int = 0
    _start_s: float = field(default_factory=time.monotonic)

    def tell(self) -> None:
        """Report the counts as they are now."""
        if self.report is not None:
            elapsed_s = time.monotonic() - self._start_s
            counts = self.num_items, self.num_failures, self.num_groups
            self.report(StreamProgress(*counts, self.total_items, elapsed_s))
