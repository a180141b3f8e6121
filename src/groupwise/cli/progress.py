"""A line about how far a long command is and how long it will still take, on stderr."""

import time
from collections.abc import Callable

import typer


class ProgressLine:
    """Prints ``120 of 838 verdicts, about 3 min left`` every few seconds and at the end.

    Args:
        things: what is counted.
        every_s: seconds between lines.
        clock: seconds from any start.
    """

    def __init__(
        self, things: str, *, every_s: float = 5.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._things = things
        self._every_s = every_s
        self._clock = clock
        self._shown_s = clock()
        self._first: tuple[int, float] | None = None

    def __call__(self, num_done: int, num_all: int) -> None:
        """Note that so many of all are done; the first call sets the start of the estimate."""
        now = self._clock()
        first_done, start_s = self._first = self._first or (num_done, now)
        if num_done < num_all and now - self._shown_s < self._every_s:
            return
        self._shown_s = now
        left = ""
        if first_done < num_done < num_all:
            each_s = (now - start_s) / (num_done - first_done)
            left = f", {describe_duration(each_s * (num_all - num_done))} left"
        typer.echo(f"{num_done} of {num_all} {self._things}{left}", err=True)


def describe_duration(seconds: float) -> str:
    """Return ``about 40 s``, ``about 3 min`` or ``about 2.5 h``."""
    if seconds < 90:
        return f"about {seconds:.0f} s"
    return f"about {seconds / 60:.0f} min" if seconds < 5400 else f"about {seconds / 3600:.1f} h"
