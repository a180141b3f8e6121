"""Equal work is done once: who asks while it is under way waits for it, later ones find it."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class _Work(Generic[T]):
    task: asyncio.Task[T]
    num_waiting: int = 0


class Once(Generic[T]):
    """Results by key; belongs to one event loop.

    Args:
        is_kept: whether a result is found by those who ask later.
        max_kept: results; the oldest go first.
    """

    def __init__(self, is_kept: Callable[[T], bool], *, max_kept: int = 2_000) -> None:
        self.is_kept = is_kept
        self.max_kept = max_kept
        self.num_done = 0
        self._kept: dict[Hashable, T] = {}
        self._open: dict[Hashable, _Work[T]] = {}

    async def get(self, key: Hashable, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the result under ``key``: kept, under way, or of ``make`` now.

        Work that nobody waits for any more is given up; what it raises, all who wait get.
        """
        if key in self._kept:
            return self._kept[key]
        work = self._open.get(key)
        if work is None:
            work = self._open[key] = _Work(asyncio.ensure_future(self._do(key, make)))
        work.num_waiting += 1
        try:
            return await asyncio.shield(work.task)
        finally:
            work.num_waiting -= 1
            if work.num_waiting == 0:
                work.task.cancel()
                if self._open.get(key) is work:
                    del self._open[key]

    async def _do(self, key: Hashable, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        result = await make()
        self.num_done += 1
        if self.is_kept(result):
            self._kept[key] = result
            if len(self._kept) > self.max_kept:
                del self._kept[next(iter(self._kept))]
        return result
