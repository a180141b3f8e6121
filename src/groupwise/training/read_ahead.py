"""Making the next batch while the model is at work on this one."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

Collate = Callable[[Sequence[int]], Any]


class ReadAhead:
    """Collates batches of consecutive places; the next one is begun when one is asked for.

    Pictures are decoded and scaled by libraries that let other threads run meanwhile. Another
    batch than the expected one is collated when it is asked for.

    Args:
        collate: makes a batch of the rows at these places; it is called by another thread, one
            call at a time.
        num_rows: places are below this.
    """

    def __init__(self, collate: Collate, *, num_rows: int) -> None:
        self.collate = collate
        self.num_rows = num_rows
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="read-ahead")
        self._expected: tuple[list[int], Future[Any]] | None = None

    def __call__(self, places: Sequence[int]) -> Any:
        """Return the batch of these places; raises what collating it raised."""
        expected, self._expected = self._expected, None
        if expected is not None and expected[0] == list(places):
            batch = expected[1].result()
        else:
            batch = self._pool.submit(self.collate, places).result()
        start = places[-1] + 1
        coming = list(range(start, min(start + len(places), self.num_rows)))
        if coming:
            self._expected = coming, self._pool.submit(self.collate, coming)
        return batch
