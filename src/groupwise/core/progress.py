"""Saying now and then how far something long is, and how long it will still take."""

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

Say = Callable[[str], None]
"""Tells people one line."""

_EVERY_S = 10.0
_LOOK_S = 0.5


class ProgressLine:
    """Says ``120 of 838 verdicts, about 3 min left`` every few seconds and at the end.

    What is left follows from the pace since the second call: what comes first often takes longer.
    Within ``keep_telling`` the line also comes while one thing takes long.

    Args:
        things: what is counted.
        say: who is told.
        every_s: seconds between lines.
        clock: seconds from any start.
    """

    def __init__(
        self,
        things: str,
        say: Say,
        *,
        every_s: float = _EVERY_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._things = things
        self._say = say
        self._clock = clock
        self._every_s = every_s
        self._last_s = clock()
        self._marks: list[tuple[int, float]] = []
        self._num_all: int | None = None
        self._note = ""

    def __call__(self, num_done: int, num_all: int | None, note: str = "") -> None:
        """Note that so many of all are done; the first call sets the start of the estimate.

        Args:
            num_done: of the things.
            num_all: of them; None where it is not known.
            note: what else the line says.
        """
        now = self._clock()
        # The start, the end of what came first, and the last time that something was done.
        if not self._marks or num_done > self._marks[-1][0]:
            self._marks = [*self._marks[:2], (num_done, now)]
        self._num_all, self._note = num_all, note
        is_end = num_done == num_all
        _PULSE.line = None if is_end else self
        if is_end or now - self._last_s >= self._every_s:
            self._last_s = now
            self.tell(now)

    def tell(self, now: float | None = None) -> None:
        """Say the line."""
        now = self._clock() if now is None else now
        num_done, num_all = self._marks[-1][0], self._num_all
        parts = [f"{num_done}{'' if num_all is None else f' of {num_all}'} {self._things}"]
        left_s, taken_s = self._estimate(now), now - self._marks[0][1]
        if left_s is not None and num_done != num_all:
            parts.append(f"{describe_duration(left_s)} left")
        elif taken_s >= 1:
            parts.append(
                f"in {taken_s:.0f} s" if num_done == num_all else f"{taken_s:.0f} s so far"
            )
        self._say(", ".join(filter(None, [*parts, self._note])))
        _PULSE.last_s = time.monotonic()

    def end(self) -> None:
        """Say nothing more: it is over, also where not all was done."""
        if _PULSE.line is self:
            _PULSE.line = None

    def _estimate(self, now: float) -> float | None:
        """Return the seconds that are left; None while nobody can say."""
        if self._num_all is None or len(self._marks) < 2:
            return None
        (first, start_s), (last, end_s) = self._marks[-2:]
        each_s = (end_s - start_s) / (last - first)
        left_s = each_s * (self._num_all - last)
        return max(left_s - (now - end_s), left_s - each_s, 0.0)


def describe_duration(seconds: float) -> str:
    """Return ``about 40 s``, ``about 3 min`` or ``about 2.5 h``."""
    if seconds < 90:
        return f"about {seconds:.0f} s"
    return f"about {seconds / 60:.0f} min" if seconds < 5400 else f"about {seconds / 3600:.1f} h"


@dataclass
class _Pulse:
    """When a line was last said in this process, and what is being counted."""

    line: ProgressLine | None = None
    last_s: float = 0.0
    is_quiet: bool = False


_PULSE = _Pulse()


@contextmanager
def keep_telling(say: Say, name: str, *, every_s: float = _EVERY_S) -> Generator[Say]:
    """Within this context somebody is told how far it is whenever nothing else was said for long.

    Args:
        say: who is told.
        name: of what goes on.
        every_s: seconds without a line.

    Yields:
        ``say``, for all lines to go through.
    """
    start_s, is_over = time.monotonic(), threading.Event()

    def tell(line: str) -> None:
        say(line)
        _PULSE.last_s = time.monotonic()

    def look() -> None:
        while not is_over.wait(min(_LOOK_S, every_s)):
            now = time.monotonic()
            if _PULSE.is_quiet or now - _PULSE.last_s < every_s:
                continue
            line = _PULSE.line
            if line is not None:
                line.tell()
            else:
                tell(f"{name}: {now - start_s:.0f} s so far")

    _PULSE.line = None
    _PULSE.last_s = time.monotonic()
    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield tell
    finally:
        is_over.set()
        thread.join()
        _PULSE.line = None


def hush(is_quiet: bool) -> None:
    """Say nothing while a bar on the terminal shows how far it is, or say it again."""
    _PULSE.is_quiet = is_quiet
