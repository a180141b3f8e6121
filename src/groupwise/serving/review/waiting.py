"""The answers that wait for people: who is asked what next, and what they say.

All of it runs in the desk's thread, one call after the other.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from groupwise.core import DataError
from groupwise.feedback import FeedbackStore, Shown, Sides, describe_look, order_for_people
from groupwise.feedback.sides import alternate
from groupwise.serving.review.leases import Leases
from groupwise.serving.review.paces import Pace
from groupwise.serving.settings import ReviewSettings

_REFRESH_S = 10.0
_LOOK_S, _NUM_LOOKED_AT, _MAX_LOOKS = 0.2, 200, 20_000
_MAX_PEOPLE = 1000


@dataclass(frozen=True, slots=True)
class ShownPicture:
    """A picture of an answer.

    Attributes:
        name: digest of its content.
        is_there: whether it was not deleted.
    """

    name: str
    is_there: bool


@dataclass(frozen=True, slots=True)
class Turn:
    """What one person is asked.

    Attributes:
        shown: the answer; None: nothing waits for this person.
        pictures: of it.
        num_done: answers that somebody spoke of.
        num_waiting: answers that nobody spoke of.
        left_s: how long they take at this person's pace; None: not known yet.
        can_undo: whether there is a word to be taken back.
    """

    shown: Shown | None
    pictures: tuple[ShownPicture, ...]
    num_done: int
    num_waiting: int
    left_s: float | None
    can_undo: bool


class WaitingAnswers:
    """Hands answers to people.

    Args:
        store: where they are kept.
        settings: the order, and how long an answer is kept from others.
        clock: seconds, never going back.
    """

    def __init__(
        self,
        store: FeedbackStore,
        settings: ReviewSettings,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self._leases = Leases(settings.lease_s, clock=clock)
        self._people: dict[str, Pace] = {}
        self._looks: dict[str, str] = {}
        self._queue: dict[str, None] = {}  # ids in their order
        self._num_done = 0
        self._refreshed_at = float("-inf")

    def ask(self, person: str) -> Turn:
        """Return what a person is asked: the same again until they say or skip it."""
        pace = self._find_pace(person)
        shown = self._find_next(person, pace)
        if shown is None:
            self._leases.end(person)
        else:
            self._leases.take(shown.id, person)
        names, find = () if shown is None else shown.pictures, self._store.pictures.find
        num_waiting = len(self._queue)
        return Turn(
            shown,
            tuple(ShownPicture(name, find(name) is not None) for name in names),
            self._num_done,
            num_waiting,
            pace.estimate(num_waiting),
            bool(pace.said),
        )

    def say(self, person: str, answer: str, label: str) -> bool:
        """Record what a person says, whoever has spoken of the answer meanwhile.

        Returns:
            False if it is what they said last.
        """
        is_new = self._store.say(answer, person, label)
        pace = self._find_pace(person)
        self._leases.end(person)
        if is_new:
            if answer in pace.said:
                pace.said.remove(answer)
            pace.said.append(answer)
            pace.times_s.append(self._clock())
        self._count_done(answer)
        return is_new

    def undo(self, person: str) -> bool:
        """Take back a person's last word here, and ask them again; False if there is none."""
        pace = self._find_pace(person)
        while pace.said:
            answer = pace.said.pop()
            with suppress(DataError):  # it is not kept any more
                if self._store.say(answer, person, None):
                    self._leases.take(answer, person)
                    self._refreshed_at = float("-inf")
                    return True
        return False

    def skip(self, person: str, answer: str) -> None:
        """Ask a person no more about an answer, and leave it to others."""
        self._leases.end(person)
        self._find_pace(person).skipped.append(answer)

    def _find_pace(self, person: str) -> Pace:
        """Return what is known of a person, who is then the last to be forgotten."""
        self._people[person] = pace = self._people.pop(person, None) or Pace()
        if len(self._people) > _MAX_PEOPLE:
            del self._people[next(iter(self._people))]
        return pace

    def _find_next(self, person: str, pace: Pace) -> Shown | None:
        if self._clock() >= self._refreshed_at + _REFRESH_S:
            self._refresh()
        held = self._leases.find(person)
        if held is not None and (shown := self._find_unspoken(held)) is not None:
            return shown
        found = self._find_free(person, pace)
        if found is None and self._clock() > self._refreshed_at:
            self._refresh()
            found = self._find_free(person, pace)
        return found

    def _find_free(self, person: str, pace: Pace) -> Shown | None:
        not_for_them = self._leases.list_others(person).union(pace.skipped)
        for answer in [one for one in self._queue if one not in not_for_them]:
            shown = self._find_unspoken(answer)
            if shown is not None:
                return shown
        return None

    def _find_unspoken(self, answer: str) -> Shown | None:
        """Return an answer that nobody speaks of; others were spoken of elsewhere, or are gone."""
        shown = self._store.find(answer)
        if shown is None:
            self._queue.pop(answer, None)
        elif self._store.read(answer) is not None:
            self._count_done(answer)
            return None
        return shown

    def _count_done(self, answer: str) -> None:
        if answer in self._queue:
            del self._queue[answer]
            self._num_done += 1

    def _refresh(self) -> None:
        waiting, spoken = self._store.list_briefly()
        order = self._settings.order
        queue = order_for_people(waiting, spoken, order=order, looks=self._looks)
        if order == "value" and self._look_at([*queue[:_NUM_LOOKED_AT], *spoken[-_NUM_LOOKED_AT:]]):
            queue = order_for_people(waiting, spoken, order=order, looks=self._looks)
        self._queue = dict.fromkeys(one.id for one in self._put_asked_first(queue, spoken))
        self._num_done = len(spoken)
        self._refreshed_at = self._clock()

    def _put_asked_first(self, queue: list[Shown], spoken: list[Shown]) -> list[Shown]:
        """Return the queue, in turn with the answers of sessions that test."""
        own = self._settings.asked
        if own is None:
            return queue
        sides = Sides(own.seed, own.test_share)
        asked = sides.draw_asked([*queue, *spoken], own.per_session)
        waiting = {one.id for one in queue}
        left = [one for session in asked.values() for one in session if one.id in waiting]
        return alternate(left, queue)

    def _look_at(self, answers: list[Shown]) -> bool:
        """Look at pictures that tell what is alike, for a moment; return whether there were any."""
        first = [one.pictures[0] for one in answers if one.pictures and not one.session]
        new = [name for name in dict.fromkeys(first) if name not in self._looks]
        if len(self._looks) > _MAX_LOOKS:
            self._looks.clear()
        ends_at = self._clock() + _LOOK_S
        for name in new:
            path = self._store.pictures.find(name)
            if path is not None and self._clock() < ends_at:
                with suppress(DataError):
                    self._looks[name] = describe_look(path)
        return bool(new)
