"""Temporal consistency: verdicts of one session that stand alone between equal ones."""

from collections.abc import Sequence

FLIP_WINDOW_S = 120.0
"""Seconds within which a person seldom leaves a task and comes back to it."""


def flag_flips(
    times_s: Sequence[float],
    verdicts: Sequence[str | None],
    *,
    window_s: float = FLIP_WINDOW_S,
) -> list[bool]:
    """Return which verdicts of a session are isolated flips.

    A verdict is one if the verdicts before and after it are equal, not its own, and no more than
    ``window_s`` apart, and neither of the two is such a flip itself: where verdicts alternate, none
    of them is the odd one. Screens without a verdict are passed over.

    Args:
        times_s: when each screen was seen, in any order.
        verdicts: what was said of each screen; None where nothing was decided.
        window_s: seconds between the two neighbours, at most.

    Returns:
        one value for each screen, in the order given.
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
