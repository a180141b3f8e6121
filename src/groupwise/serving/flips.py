"""Temporal consistency: verdicts of one session that stand alone between equal ones.

They are known for sure afterwards alone. When a verdict is given, it can only be unlike those that
came just before: all that turn out to be flips are among these, and so is the first after a change.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from groupwise.data.splits import find_near_texts

FLIP_WINDOW_S = 120.0
"""Seconds within which a person seldom leaves a task and comes back to it."""
_NUM_SESSIONS, _NUM_KEPT, _NUM_CHARACTERS = 10_000, 4, 200


def flag_flips(
    times_s: Sequence[float], verdicts: Sequence[str | None], *, window_s: float = FLIP_WINDOW_S
) -> list[bool]:
    """Return which verdicts of a session are isolated flips.

    A verdict is one if the verdicts before and after it are equal, not its own, and no more than
    ``window_s`` apart, and neither of the two is such a flip itself: where verdicts alternate, none
    of them is the odd one. Screens without a verdict are passed over.

    Args:
        times_s: when each screen was seen, in any order.
        verdicts: on each screen; None where nothing was decided.
        window_s: seconds between the two neighbours, at most.
    """
    if len(times_s) != len(verdicts):
        raise ValueError(f"{len(times_s)} times for {len(verdicts)} verdicts")
    decided = sorted(
        (place for place, verdict in enumerate(verdicts) if verdict is not None),
        key=lambda place: times_s[place],
    )
    triples = zip(decided, decided[1:], decided[2:], strict=False)
    are_odd = [
        verdicts[before] == verdicts[behind] != verdicts[place]
        and times_s[behind] - times_s[before] <= window_s
        for before, place, behind in triples
    ]
    padded = [False, *are_odd, False]
    flags = [False] * len(verdicts)
    for number, place in enumerate(decided[1:-1], start=1):
        flags[place] = padded[number] and not (padded[number - 1] or padded[number + 1])
    return flags


@dataclass(frozen=True, slots=True)
class TimedVerdict:
    """A verdict on a screen."""

    time_s: float  # when the screen was seen, in seconds
    task: str  # that it was held against
    verdict: str


class FlipMemory:
    """The last verdicts of the sessions asked about last; memory is bounded whatever is asked."""

    def __init__(self, num_sessions: int = _NUM_SESSIONS) -> None:
        self._num_sessions = num_sessions
        self._sessions: dict[str, tuple[TimedVerdict, ...]] = {}

    def add(self, session: str, seen: TimedVerdict) -> TimedVerdict | None:
        """Remember a verdict; return the one before it if it may be a flip, else None.

        It may be one where it is unlike the last two on nearly the same task within
        ``FLIP_WINDOW_S``, or the only one.
        """
        own = replace(seen, task=seen.task[:_NUM_CHARACTERS])
        known = self._sessions.pop(session, ())
        self._sessions[session] = (*known, own)[-_NUM_KEPT:]
        if len(self._sessions) > self._num_sessions:
            del self._sessions[next(iter(self._sessions))]
        before = [
            one
            for one in sorted(known, key=lambda one: one.time_s)
            if 0 <= own.time_s - one.time_s <= FLIP_WINDOW_S
            and find_near_texts([own.task], [one.task])
        ][-2:]
        is_unlike = all(one.verdict != own.verdict for one in before)
        return before[-1] if before and is_unlike else None
