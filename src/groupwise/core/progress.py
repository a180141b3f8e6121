"""Saying now and then how far something long is, and how long it will still take."""

import time
from collections.abc import Callable

Say = Callable[[str], None]
"""Tells people one line."""

_EVERY_S = 10.0


class ProgressLine:
    """Says ``120 of 838 verdicts, about 3 min left`` every few seconds and at the end.

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
        self._first: tuple[int, float] | None = None

    def __call__(self, num_done: int, num_all: int | None, note: str = "") -> None:
        """Note that so many of all are done; the first call sets the start of the estimate.

        Args:
            num_done: of the things.
            num_all: of them; None where it is not known.
            note: what else the line says.
        """
        now = self._clock()
        first_done, start_s = self._first = self._first or (num_done, now)
        if now - self._last_s < self._every_s and num_done != num_all:
            return
        self._last_s = now
        parts = [f"{num_done}{'' if num_all is None else f' of {num_all}'} {self._things}"]
        if num_all is not None and first_done < num_done < num_all:
            each_s = (now - start_s) / (num_done - first_done)
            parts.append(f"{describe_duration(each_s * (num_all - num_done))} left")
        self._say(", ".join(filter(None, [*parts, note])))


def describe_duration(seconds: float) -> str:
    """Return ``about 40 s``, ``about 3 min`` or ``about 2.5 h``."""
    if seconds < 90:
        return f"about {seconds:.0f} s"
    return f"about {seconds / 60:.0f} min" if seconds < 5400 else f"about {seconds / 3600:.1f} h"
