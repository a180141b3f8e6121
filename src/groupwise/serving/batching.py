"""Micro-batches: questions that wait at the same time are answered together, in one thread.

A question whose asker has gone before its turn is not answered. An error in a batch is looked for
one by one, so that one question never takes the others with it.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from groupwise.core import Example, GroupwiseError
from groupwise.serving.meters import Meters
from groupwise.serving.predictor import Answer, try_each
from groupwise.serving.settings import ServeSettings


@dataclass(frozen=True, slots=True)
class _Waiting:
    question: Example
    result: asyncio.Future[Answer]


class Batcher:
    """Answers questions; ``start`` before the first and ``stop`` after the last.

    Args:
        work: answers questions together.
        thread: where it does.
        settings: sizes and waits.
        meters: what is counted.
    """

    def __init__(
        self,
        work: Callable[[Sequence[Example]], Sequence[Answer]],
        thread: Executor,
        settings: ServeSettings,
        meters: Meters,
    ) -> None:
        self._answer_all = work
        self._thread = thread
        self._settings = settings
        self._meters = meters
        self._queue: asyncio.Queue[_Waiting] = asyncio.Queue()
        self._worker: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to answer what comes."""
        self._worker = asyncio.get_running_loop().create_task(self._work())

    async def stop(self) -> None:
        """End after the batch that is being answered; nobody may be waiting any more."""
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)

    async def answer(self, question: Example) -> Answer:
        """Return the answer to one question; cancel it to give its place to others."""
        waiting = _Waiting(question, asyncio.get_running_loop().create_future())
        await self._queue.put(waiting)
        return await waiting.result

    async def _work(self) -> None:
        while True:
            batch = await self._collect()
            wanted = [waiting for waiting in batch if not waiting.result.done()]
            if not wanted:
                continue
            self._meters.batch_questions.observe(len(wanted))
            loop = asyncio.get_running_loop()
            questions = [waiting.question for waiting in wanted]
            found = await loop.run_in_executor(self._thread, try_each, self._answer_all, questions)
            for waiting, result in zip(wanted, found, strict=True):
                self._give(waiting.result, result)

    def _give(self, place: asyncio.Future[Answer], result: Answer | Exception) -> None:
        if isinstance(result, Exception) and not isinstance(result, GroupwiseError):
            self._meters.errors.inc()
        if place.done():
            return
        if isinstance(result, Exception):
            place.set_exception(result)
        else:
            place.set_result(result)

    async def _collect(self) -> list[_Waiting]:
        """Return the questions that are there, the first after a short wait for others."""
        batch = [await self._queue.get()]
        if self._queue.empty() and self._settings.batch_wait_ms:
            await asyncio.sleep(self._settings.batch_wait_ms / 1000)
        while len(batch) < self._settings.max_batch and not self._queue.empty():
            batch.append(self._queue.get_nowait())
        return batch
