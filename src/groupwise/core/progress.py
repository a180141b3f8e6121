"""Saying now and then how far something long is, and how long it will still take."""

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

Say = Callable[[str], None]
"""Tells people one line."""

_EVERY_S = 10.0
_LOOK_S = 0.5
_is_bar_shown = threading.Event()
_last_said_s = 0.0


def _note_said() -> None:
    global _last_said_s
    _last_said_s = time.monotonic()


class ProgressLine:
    """Says ``120 of 838 verdicts, about 3 min left`` every few seconds and at the end.

    What is left follows from the pace since the second call: what comes first often takes longer.

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
        self._things, self._say = things, say
        self._every_s, self._clock = every_s, clock
        self._last_s = clock()
        # The start, the end of what came first, and the last time that something was done.
        self._marks: list[tuple[int, float]] = []

    def __call__(self, num_done: int, num_all: int | None, note: str = "") -> None:
        """Note that so many of all are done; the first call sets the start of the estimate.

        Args:
            num_done: of the things.
            num_all: of them; None where it is not known.
            note: what else the line says.
        """
        now = self._clock()
        if not self._marks or num_done > self._marks[-1][0]:
            self._marks = [*self._marks[:2], (num_done, now)]
        is_end = num_done == num_all
        if not is_end and now - self._last_s < self._every_s:
            return
        self._last_s = now
        parts = [f"{num_done}{'' if num_all is None else f' of {num_all}'} {self._things}"]
        taken_s = now - self._marks[0][1]
        if num_all is not None and not is_end and len(self._marks) > 1:
            (first, start_s), (last, end_s) = self._marks[-2:]
            left_s = (end_s - start_s) / (last - first) * (num_all - last)
            parts.append(f"{describe_duration(left_s)} left")
        elif taken_s >= 1:
            parts.append(f"in {taken_s:.0f} s" if is_end else f"{taken_s:.0f} s so far")
        self._say(", ".join(filter(None, [*parts, note])))
        _note_said()  # a trainer's lines do not go through ``keep_telling``


def describe_duration(seconds: float) -> str:
    """Return ``about 40 s``, ``about 3 min`` or ``about 2.5 h``."""
    if seconds < 90:
        return f"about {seconds:.0f} s"
    return f"about {seconds / 60:.0f} min" if seconds < 5400 else f"about {seconds / 3600:.1f} h"


@contextmanager
def keep_telling(say: Say, name: str, *, every_s: float = _EVERY_S) -> Generator[Say]:
    """Within this context somebody is told that it goes on whenever nothing was said for long.

    Args:
        say: who is told.
        name: of what goes on.
        every_s: seconds without a line.

    Yields:
        ``say``, for all lines to go through.
    """
    start_s = time.monotonic()
    _note_said()
    is_over = threading.Event()

    def tell(line: str) -> None:
        say(line)
        _note_said()

    def look() -> None:
        while not is_over.wait(min(_LOOK_S, every_s)):
            now = time.monotonic()
            if now - _last_said_s >= every_s and not _is_bar_shown.is_set():
                tell(f"{name}: {now - start_s:.0f} s so far")

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield tell
    finally:
        is_over.set()
        thread.join()


def hush(is_quiet: bool) -> None:
    """Say nothing while a bar on the terminal shows how far it is, or say it again."""
    if is_quiet:
        _is_bar_shown.set()
    else:
        _is_bar_shown.clear()
