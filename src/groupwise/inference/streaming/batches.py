"""Batches across groups: items of about the same length together, from a bounded window.

A batch is as slow as its longest row, so rows of one length waste nothing. The window is worked
off before the next is taken: no item waits for longer, whatever its length.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import TypeVar

from groupwise.inference.streaming.work import WorkItem

R = TypeVar("R")


def form_batches(
    items: Iterator[WorkItem],
    *,
    measure: Callable[[Sequence[WorkItem]], Sequence[float]],
    batch_size: int,
    window: int,
) -> Iterator[list[WorkItem]]:
    """Yield batches of items of similar measure; those with the oldest items first.

    Args:
        items: taken ``window`` at a time.
        measure: returns about how long each item's prompt is.
        batch_size: items in a batch; the last one of a window may have fewer.
        window: items that are sorted at once.
    """
    while waiting := list(islice(items, window)):
        measured = zip(measure(waiting), waiting, strict=True)
        ordered = [item for _, item in sorted(measured, key=lambda pair: pair[0])]
        batches = [ordered[s : s + batch_size] for s in range(0, len(ordered), batch_size)]
        yield from sorted(batches, key=lambda batch: min(item.number for item in batch))


def prepare_ahead(
    batches: Iterable[Sequence[WorkItem]],
    prepare: Callable[[WorkItem], R],
    *,
    pool: ThreadPoolExecutor,
    num_ahead: int,
) -> Iterator[list[R]]:
    """Yield each batch prepared; so many of the next ones are begun before it is yielded."""
    begun: deque[list[Future[R]]] = deque()
    for batch in batches:
        begun.append([pool.submit(prepare, item) for item in batch])
        if len(begun) > num_ahead:
            yield [future.result() for future in begun.popleft()]
    while begun:
        yield [future.result() for future in begun.popleft()]


@contextmanager
def open_pool(num_threads: int) -> Generator[ThreadPoolExecutor]:
    """Give threads for pictures; what has not begun by the end never does."""
    pool = ThreadPoolExecutor(num_threads, thread_name_prefix="pictures")
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
