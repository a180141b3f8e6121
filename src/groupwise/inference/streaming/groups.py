"""Batch inference: groups go in, outcomes come out, and only a few are in memory at a time."""

import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field

from groupwise.core import ProgressLine, Say
from groupwise.inference.engine import Sampling
from groupwise.inference.streaming.work import (
    Failure,
    GroupOutcome,
    Outcome,
    StreamBackend,
    StreamSettings,
    WorkGroup,
    WorkItem,
)


@dataclass(frozen=True, slots=True)
class StreamProgress:
    """Counts of a stream at one moment.

    Attributes:
        num_items: answered or failed.
        num_failures: among them.
        num_groups: complete.
        total_items: of the whole stream; None where it is not known.
        elapsed_s: since the stream began.
    """

    num_items: int
    num_failures: int
    num_groups: int
    total_items: int | None
    elapsed_s: float

    @property
    def items_per_s(self) -> float:
        """Mean rate; 0 before the first item."""
        return self.num_items / self.elapsed_s if self.num_items and self.elapsed_s > 0 else 0.0

    def describe(self) -> str:
        """Return groups, failures and rate, for a person."""
        failed = f"{self.num_failures} failed, " if self.num_failures else ""
        return f"{self.num_groups} groups, {failed}{self.items_per_s:.1f}/s"


class StreamLine:
    """Says how far a stream is, every few seconds and at its end.

    Args:
        say: who is told.
    """

    def __init__(self, say: Say) -> None:
        self._line = ProgressLine("items", say)

    def __call__(self, progress: StreamProgress) -> None:
        """Take the counts after an item."""
        self._line(progress.num_items, progress.total_items, progress.describe())


ReportStream = Callable[[StreamProgress], None]
"""Called after every item, in the thread that takes the groups."""


@dataclass
class ProgressCount:
    """Counts and tells.

    Args:
        report: who is told, if anybody.
        total_items: of the whole stream, if known.
    """

    report: ReportStream | None
    total_items: int | None
    num_items: int = 0
    num_failures: int = 0
    num_groups: int = 0
    _start_s: float = field(default_factory=time.monotonic)

    def tell(self) -> None:
        """Report the counts as they are now."""
        if self.report is not None:
            elapsed_s = time.monotonic() - self._start_s
            counts = self.num_items, self.num_failures, self.num_groups
            self.report(StreamProgress(*counts, self.total_items, elapsed_s))


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
