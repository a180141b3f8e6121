"""Batch inference: groups go in, outcomes come out, and only a few are in memory at a time."""

from collections import deque
from collections.abc import Collection, Generator, Iterable, Iterator
from contextlib import closing

from groupwise.inference.engine import Sampling
from groupwise.inference.streaming.progress import ProgressCount, ReportStream
from groupwise.inference.streaming.settings import StreamSettings
from groupwise.inference.streaming.work import (
    Failure,
    GroupOutcome,
    Outcome,
    StreamBackend,
    WorkGroup,
    WorkItem,
)


def generate_groups(
    backend: StreamBackend,
    groups: Iterable[WorkGroup],
    *,
    sampling: Sampling,
    settings: StreamSettings | None = None,
    report_progress: ReportStream | None = None,
    num_items: int | None = None,
) -> Generator[GroupOutcome]:
    """Yield what the model says to every example of every group.

    Groups are taken as they are needed and let go when their outcome is yielded, so that any
    number of them takes the memory of a few. An example that fails is a ``Failure`` in its group's
    outcome and the stream goes on. With greedy decoding, outcomes do not depend on the batches.
    Write each outcome down as it comes, and leave out what is written when you start again: then
    a run that is killed continues.

    Args:
        backend: what answers.
        groups: taken in the calling thread.
        sampling: how completions are drawn.
        settings: batches, order, pictures.
        report_progress: called after every item.
        num_items: of all groups, for the time left; counted here if ``groups`` is a collection.

    Raises:
        GroupwiseError: if the model, not an example, is at fault.
    """
    settings = settings or StreamSettings()
    total = num_items if num_items is not None else _count_items(groups)
    tracker = _Tracker(settings, ProgressCount(report_progress, total))
    items = tracker.take_items(groups)
    with closing(backend.stream(items, sampling=sampling, settings=settings)) as outcomes:
        for number, outcome in outcomes:
            tracker.settle(number, outcome)
            yield from tracker.take_complete()
    yield from tracker.take_complete()


class _OpenGroup:
    """A group and the outcomes that it has so far."""

    def __init__(self, group: WorkGroup) -> None:
        self.id = group.id
        self.outcomes: list[Outcome | None] = [None] * len(group.examples)
        self.num_open = len(group.examples)

    def close(self) -> GroupOutcome:
        outcomes = tuple(outcome for outcome in self.outcomes if outcome is not None)
        return GroupOutcome(self.id, outcomes)


class _Tracker:
    """Knows which item belongs where, and which groups are complete."""

    def __init__(self, settings: StreamSettings, progress: ProgressCount) -> None:
        self._keeps_order = settings.order == "given"
        self._progress = progress
        self._places: dict[int, tuple[_OpenGroup, int]] = {}
        self._queue: deque[_OpenGroup] = deque()
        """All groups not yet yielded in input order, or only the complete ones."""

    def take_items(self, groups: Iterable[WorkGroup]) -> Iterator[WorkItem]:
        """Yield the groups' examples, numbered."""
        number = 0
        for group in groups:
            opened = _OpenGroup(group)
            self._progress.num_groups += not opened.num_open
            if self._keeps_order or not opened.num_open:
                self._queue.append(opened)
            for place, example in enumerate(group.examples):
                self._places[number] = opened, place
                yield WorkItem(number, example)
                number += 1

    def settle(self, number: int, outcome: Outcome) -> None:
        """Take the outcome of an item."""
        group, place = self._places.pop(number)
        group.outcomes[place] = outcome
        group.num_open -= 1
        if not group.num_open and not self._keeps_order:
            self._queue.append(group)
        self._progress.num_items += 1
        self._progress.num_failures += isinstance(outcome, Failure)
        self._progress.num_groups += not group.num_open
        self._progress.tell()

    def take_complete(self) -> Iterator[GroupOutcome]:
        """Yield the groups whose turn it is."""
        while self._queue and not self._queue[0].num_open:
            yield self._queue.popleft().close()


def _count_items(groups: Iterable[WorkGroup]) -> int | None:
    if isinstance(groups, Collection):
        return sum(len(group.examples) for group in groups)
    return None
