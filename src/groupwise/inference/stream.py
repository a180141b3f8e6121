"""Batch inference: groups go in, outcomes come out, and only a few are in memory at a time.

Here is what is asked, what comes back, and a model behind a server; ``local_stream`` has a model in
this process, and ``many_machines`` the workers of a cluster.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import closing
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Protocol

from pydantic import Field

from groupwise.core import Completion, Config, DataError, Example, ModelError, Place
from groupwise.inference.model import (
    Model,
    RequestCause,
    RequestError,
    Sampling,
    start_on_shared_loop,
)
from groupwise.inference.pictures import open_limited
from groupwise.inference.settings import ServerSettings, retry

LOOK_AHEAD = 4
"""So many batches are formed at once, out of items sorted by their length."""
_GIVE_UP_AFTER = 16


class StreamSettings(Config):
    """Settings of batch inference; both bound its memory.

    Attributes:
        batch_size: items that a model in this process answers at once, from any groups.
        max_pixels: larger pictures are scaled down to so many; None: as the processor does.
    """

    retired: ClassVar = {
        "order": ("given", "finished"),
        "look_ahead": (LOOK_AHEAD,),
        "num_prefetch": (1,),
        "num_threads": (4,),
    }

    batch_size: int = Field(default=16, ge=1, le=65_536)
    max_pixels: int | None = Field(default=786_432, ge=28 * 28)


class RaySettings(Config):
    """Workers of a cluster, each with a policy of its own.

    Attributes:
        address: of a running cluster (``auto``: the one of this machine); None: one is started
            in this machine, unless this process is in one already.
        num_workers: processes with a policy each.
        num_gpus: of each worker.
    """

    retired: ClassVar = {"num_cpus": (1.0,), "slice_size": (20_000,)}

    address: Annotated[str | None, Place("where a cluster is reached", "集群地址")] = None
    num_workers: int = Field(default=2, ge=1, le=4096)
    num_gpus: float = Field(default=0.0, ge=0)


FailureCause = Literal["picture", "too_long", "memory"] | RequestCause
"""``picture``: it cannot be read, decoded or scaled. ``too_long``: the prompt and the longest
answer are more than the model takes. ``memory``: out of memory with this item alone. The others
are those of requests to a server."""


@dataclass(frozen=True, slots=True)
class WorkGroup:
    """Examples whose completions belong together, such as the photos of a work order."""

    id: str  # given back with the completions; need not be unique
    examples: tuple[Example, ...]  # asked one by one, in this order; none is fine


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an item has no completion; it never stands for a text."""

    cause: FailureCause
    message: str


Outcome = Completion | Failure


@dataclass(frozen=True, slots=True)
class GroupOutcome:
    """What came of a group: one completion or failure for each example, in order."""

    id: str
    completions: tuple[Outcome, ...]

    @property
    def failures(self) -> tuple[Failure, ...]:
        """The failures alone; none if the group succeeded."""
        return tuple(found for found in self.completions if isinstance(found, Failure))


@dataclass(frozen=True, slots=True)
class WorkItem:
    """One example of a stream and its number in it, counted from 0."""

    number: int
    example: Example


class Stream(Protocol):
    """Answers examples one after another."""

    def stream(
        self, items: Iterator[WorkItem], *, sampling: Sampling, settings: StreamSettings
    ) -> Generator[tuple[int, Outcome]]:
        """Yield each item's number and outcome once, in any order.

        Items are taken only a bounded number ahead of the oldest one without an outcome. Closing
        the iterator ends all work in the background.
        """
        ...


ReportStream = Callable[[int, int | None, str], object]
"""Called after every item, in the thread that takes the groups, with the numbers of items that are
answered or failed and of all (None where it is not known), and a line about groups, failures and
rate: a ``ProgressLine`` is one."""


def generate_groups(
    stream: Stream,
    groups: Iterable[WorkGroup],
    *,
    sampling: Sampling,
    settings: StreamSettings | None = None,
    report_progress: ReportStream | None = None,
    num_items: int | None = None,
) -> Generator[GroupOutcome]:
    """Yield what the model says to every example of every group, in the order of the groups.

    Groups are taken as they are needed and let go when their outcome is yielded, so that any
    number of them takes the memory of a few. An example that fails is a ``Failure`` in its group's
    outcome and the stream goes on. With greedy decoding, outcomes do not depend on the batches.
    Write each outcome down as it comes, and leave out what is written when you start again: then
    a run that is killed continues.

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
        num_items = sum(len(group.examples) for group in groups)
    start_s = time.monotonic()
    queue: deque[tuple[str, list[Outcome | None]]] = deque()
    places: dict[int, tuple[list[Outcome | None], int]] = {}
    num_done = num_failed = num_groups = 0

    def take_items() -> Iterator[WorkItem]:
        number = 0
        for group in groups:
            found: list[Outcome | None] = [None] * len(group.examples)
            queue.append((group.id, found))
            for place, example in enumerate(group.examples):
                places[number] = found, place
                yield WorkItem(number, example)
                number += 1

    def take_complete() -> list[GroupOutcome]:
        complete: list[GroupOutcome] = []
        while queue and None not in queue[0][1]:
            id_, found = queue.popleft()
            complete.append(GroupOutcome(id_, tuple(one for one in found if one is not None)))
        return complete

    items = take_items()
    with closing(
        stream.stream(items, sampling=sampling, settings=settings or StreamSettings())
    ) as outcomes:
        for number, outcome in outcomes:
            found, place = places.pop(number)
            found[place] = outcome
            complete = take_complete()
            num_done, num_groups = num_done + 1, num_groups + len(complete)
            num_failed += isinstance(outcome, Failure)
            if report_progress is not None:
                rate = num_done / max(time.monotonic() - start_s, 1e-9)
                failed = f"{num_failed} failed, " if num_failed else ""
                line = f"{num_groups} groups, {failed}{rate:.1f}/s"
                report_progress(num_done, num_items, line)
            yield from complete
    yield from take_complete()


class ServerStream:
    """Asks once for each item, many items at once; a server forms its own batches.

    A request that fails is repeated as the server's settings say; then it is a failure of its item.
    A server that is gone, or refuses all it is asked, is none of the items: the stream ends.

    Args:
        settings: of the server.
        max_pixels: larger pictures are scaled down to so many; None: none is.
        model: what is asked; None: the server's.

    Raises:
        ConfigError: if the server may not be asked (see ``ServerModel``).
    """

    def __init__(
        self, settings: ServerSettings, *, max_pixels: int | None = None, model: Model | None = None
    ) -> None:
        from groupwise.inference.server import ServerModel

        self.model = model or ServerModel(settings, max_pixels=max_pixels)
        self._max_pixels = max_pixels
        self._num_at_once = settings.limits.max_concurrency
        self._retry = settings.retry

    def stream(
        self, items: Iterator[WorkItem], *, sampling: Sampling, settings: StreamSettings
    ) -> Generator[tuple[int, Outcome]]:
        """Yield each item's number and outcome as its reply comes.

        Raises:
            ModelError: if the server is gone, or refuses all it is asked.
        """
        # A few more run than are asked at once, so that pictures are ready when a place is free;
        # none runs too far ahead of the oldest.
        most = self._num_at_once + 4
        window = max(settings.batch_size * LOOK_AHEAD, 4 * most)
        running: dict[Future[Outcome], int] = {}
        has_answered, num_in_vain = False, 0

        def take_done() -> Iterator[tuple[int, Outcome]]:
            nonlocal has_answered, num_in_vain
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                outcome = future.result()
                if isinstance(outcome, Completion):
                    has_answered, num_in_vain = True, 0
                else:
                    hopeless = ("connection",) if has_answered else ("connection", "refused")
                    num_in_vain += outcome.cause in hopeless
                    if num_in_vain >= _GIVE_UP_AFTER:
                        raise ModelError(
                            f"the server answers nothing: {num_in_vain} items in a row failed, "
                            f"the last one because of: {outcome.message}",
                            fix="see to the server, or to its address, model name and key, and "
                            "start again",
                        )
                yield running.pop(future), outcome

        try:
            for item in items:
                while running and (
                    len(running) >= most or item.number - min(running.values()) >= window
                ):
                    yield from take_done()
                running[start_on_shared_loop(self._ask(item.example, sampling))] = item.number
            while running:
                yield from take_done()
        finally:
            for future in running:
                future.cancel()

    async def _ask(self, example: Example, sampling: Sampling) -> Outcome:
        async def attempt() -> Completion:
            reply = await self.model.reply(example, sampling=sampling)
            if reply.text is None:  # an empty text is an answer
                raise RequestError("no_content", "the reply has no content", usage=reply.usage)
            return Completion(
                reply.text, finish_reason="stop" if reply.finish_reason == "stop" else "length"
            )

        try:
            for picture in example.pictures:  # one that is torn is not sent
                await asyncio.to_thread(open_limited, picture, self._max_pixels)
            return await retry(attempt, self._retry)
        except RequestError as error:
            return Failure(error.cause, str(error))
        except DataError as error:
            return Failure("picture", str(error))
        except MemoryError:
            return Failure("memory", "out of memory while its pictures were read")
