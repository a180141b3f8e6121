"""Who is being asked about which answer, for a while."""

from collections.abc import Callable


class Leases:
    """At most one answer for each person, kept from others until its time is over.

    Args:
        duration_s: of a lease.
        max_people: that have one; the one that has it longest makes room.
        clock: seconds, never going back.
    """

    def __init__(
        self, duration_s: float, *, clock: Callable[[], float], max_people: int = 1000
    ) -> None:
        self._duration_s = duration_s
        self._clock = clock
        self._max_people = max_people
        self._held: dict[str, tuple[str, float]] = {}  # the one that ends first stands first

    def take(self, answer: str, person: str) -> None:
        """Give an answer to a person, who gives up the one before."""
        self.end(person)
        self._held[person] = (answer, self._clock() + self._duration_s)
        if len(self._held) > self._max_people:
            self.end(next(iter(self._held)))

    def end(self, person: str) -> None:
        """Let go of what a person has."""
        self._held.pop(person, None)

    def find(self, person: str) -> str | None:
        """Return the answer that a person has; None if there is none, or its time is over."""
        self._drop_ended()
        answer, _ = self._held.get(person, (None, 0.0))
        return answer

    def list_others(self, person: str) -> set[str]:
        """Return the answers that others have."""
        self._drop_ended()
        return {answer for one, (answer, _) in self._held.items() if one != person}

    def _drop_ended(self) -> None:
        now = self._clock()
        for person in [one for one, (_, ends_at) in self._held.items() if ends_at <= now]:
            self.end(person)
