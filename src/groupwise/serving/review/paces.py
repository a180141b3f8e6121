"""What a person did on the page since they came: what can be undone, and how fast they are."""

from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

_NUM_UNDONE, _NUM_SKIPPED, _NUM_TIMES = 100, 1000, 21
_MIN_GAPS, _PAUSE_S = 3, 300.0


@dataclass(slots=True)
class Pace:
    """One person; the oldest of what would be too much is forgotten.

    Attributes:
        said: answers they spoke of, the last one last.
        skipped: answers that they did not want to speak of.
        times_s: when they spoke.
    """

    said: deque[str] = field(default_factory=lambda: deque(maxlen=_NUM_UNDONE))
    skipped: deque[str] = field(default_factory=lambda: deque(maxlen=_NUM_SKIPPED))
    times_s: deque[float] = field(default_factory=lambda: deque(maxlen=_NUM_TIMES))

    def estimate(self, num_left: int) -> float | None:
        """Return how many seconds so many answers take; None before three are timed.

        It is the median of the last 20 times from answer to answer, pauses of more than five
        minutes left out.
        """
        gaps = [later - earlier for earlier, later in pairwise(self.times_s)]
        gaps = [gap for gap in gaps if gap <= _PAUSE_S]
        return median(gaps) * num_left if len(gaps) >= _MIN_GAPS else None
