"""Batch inference: groups go in, their replies come out, and only a few are in memory at a time.

Here is what is asked and what comes back. A ``ServerModel`` answers streams, and so do a model in
this process (``local_stream``) and the workers of a cluster (``many_machines``).
"""

import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Literal, Protocol

from groupwise.core import Completion, Example
from groupwise.inference.model import RequestCause
from groupwise.inference.settings import Sampling, StreamSettings

FailureCause = Literal["picture", "too_long", "memory"] | RequestCause
"""``picture``: it cannot be read, decoded or scaled. ``too_long``: the prompt and the longest
answer are more than the model takes. ``memory``: out of memory with this item alone. The others
are those of requests to a server."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an example has no completion; it never stands for a text."""

    cause: FailureCause
    message: str


Outcome = Completion | Failure
Group = tuple[str, Sequence[Example]]
"""An id, which need not be unique, and examples that belong together, such as the photos of a work
order; none is fine."""


class Stream(Protocol):
    """Answers examples one after another."""

    def stream(
        self, examples: Iterator[Example], *, sampling: Sampling, settings: StreamSettings
    ) -> Generator[tuple[int, Outcome]]:
        """Yield each example's number, counted from 0, and outcome once, in any order.

        Examples are taken only a bounded number ahead of the oldest one without an outcome. Closing
        the iterator ends all work in the background.
        """
        ...


ReportStream = Callable[[int, int | None, str], object]
"""Called after every item, in the thread that takes the groups, with the numbers of items that are
answered or failed and of all (None where it is not known), and a line about groups, failures and
rate: a ``ProgressLine`` is one."""


def generate_groups(
    stream: Stream,
    groups: Iterable[Group],
    *,
    sampling: Sampling,
    settings: StreamSettings | None = None,
    report_progress: ReportStream | None = None,
    num_items: int | None = None,
) -> Generator[tuple[str, list[Outcome]]]:
    """Yield each group's id and what the model says to its examples, in the order of the groups.

    Groups are taken as they are needed and let go when their outcomes are yielded, so that any
    number of them takes the memory of a few. An example that fails is a ``Failure`` among its
    group's outcomes and the stream goes on. With greedy decoding, outcomes do not depend on the
    batches. Write outcomes down as they come, and leave out what is written when you start again:
    then a run that is killed continues.

    Args:
        stream: what answers.
        groups: taken in the calling thread.
        sampling: how completions are drawn.
        settings: batches and pictures.
        report_progress: called after every item.
        num_items: of all groups, for the time left; counted here if ``groups`` is a collection.

    Raises:
        GroupwiseError: if the model, not an example, is at fault.
    """
    if num_items is None and isinstance(groups, Collection):
        num_items = sum(len(examples) for _, examples in groups)
    start_s = time.monotonic()
    queue: deque[tuple[str, list[Outcome | None]]] = deque()
    places: dict[int, tuple[list[Outcome | None], int]] = {}
    num_done = num_failed = num_groups = 0

    def take_examples() -> Iterator[Example]:
        number = 0
        for id_, examples in groups:
            found: list[Outcome | None] = [None] * len(examples)
            queue.append((id_, found))
            for place, example in enumerate(examples):
                places[number] = found, place
                yield example
                number += 1

    def take_complete() -> Iterator[tuple[str, list[Outcome]]]:
        while queue and None not in queue[0][1]:
            id_, found = queue.popleft()
            yield id_, [one for one in found if one is not None]

    settings = settings or StreamSettings()
    with closing(stream.stream(take_examples(), sampling=sampling, settings=settings)) as outcomes:
        for number, outcome in outcomes:
            found, place = places.pop(number)
            found[place] = outcome
            complete = list(take_complete())
            num_done, num_groups = num_done + 1, num_groups + len(complete)
            num_failed += isinstance(outcome, Failure)
            if report_progress is not None:
                rate = num_done / max(time.monotonic() - start_s, 1e-9)
                failed = f"{num_failed} failed, " if num_failed else ""
                line = f"{num_groups} groups, {failed}{rate:.1f}/s"
                report_progress(num_done, num_items, line)
            yield from complete
    yield from take_complete()
