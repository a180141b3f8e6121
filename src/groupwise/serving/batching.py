"""Micro-batches: groups that wait at the same time are judged together, in one thread.

A group whose asker has gone before its turn is not judged. An error in a batch is looked for one
by one, so that one group never takes the others with it.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from groupwise.core import GroupwiseError
from groupwise.serving.groups import GroupPredictor, GroupRequest, GroupVerdict
from groupwise.serving.meters import Meters
from groupwise.serving.settings import ServeSettings


@dataclass(frozen=True, slots=True)
class _Waiting:
    request: GroupRequest
    result: asyncio.Future[GroupVerdict]


class GroupBatcher:
    """Judges groups with a predictor; ``start`` before the first and ``stop`` after the last.

    Args:
        predictor: what judges.
        settings: sizes and waits.
        meters: what is counted.
    """

    def __init__(self, predictor: GroupPredictor, settings: ServeSettings, meters: Meters) -> None:
        self._predictor = predictor
        self._settings = settings
        self._meters = meters
        self._queue: asyncio.Queue[_Waiting] = asyncio.Queue()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="predictor")
        self._worker: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to judge what comes."""
        self._worker = asyncio.get_running_loop().create_task(self._work())

    async def stop(self) -> None:
        """End after the batch that is being judged; nobody may be waiting any more."""
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)
        self._thread.shutdown(wait=True)

    async def judge(self, request: GroupRequest) -> GroupVerdict:
        """Return the verdict of one group; cancel it to give its place to others."""
        waiting = _Waiting(request, asyncio.get_running_loop().create_future())
        await self._queue.put(waiting)
        return await waiting.result

    async def _work(self) -> None:
        while True:
            batch = await self._collect()
            wanted = [waiting for waiting in batch if not waiting.result.done()]
            if not wanted:
                continue
            self._meters.batch_groups.observe(len(wanted))
            verdicts = await self._predict([waiting.request for waiting in wanted])
            for waiting, verdict in zip(wanted, verdicts, strict=True):
                if not waiting.result.done():
                    waiting.result.set_result(verdict)

    async def _collect(self) -> list[_Waiting]:
        """Return the groups that are there, the first after a short wait for others."""
        batch = [await self._queue.get()]
        if self._queue.empty() and self._settings.batch_wait_ms:
            await asyncio.sleep(self._settings.batch_wait_ms / 1000)
        while len(batch) < self._settings.max_batch and not self._queue.empty():
            batch.append(self._queue.get_nowait())
        return batch

    async def _predict(self, requests: Sequence[GroupRequest]) -> list[GroupVerdict]:
        try:
            return await self._run(requests)
        except Exception as error:  # noqa: BLE001 (one request must not end the server)
            if len(requests) == 1:
                self._meters.errors.inc()
                return [_describe_failure(requests[0], error)]
        return [verdict for one in requests for verdict in await self._predict([one])]

    async def _run(self, requests: Sequence[GroupRequest]) -> list[GroupVerdict]:
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._thread, self._predictor.predict, requests)
        if [verdict.id for verdict in found] != [request.id for request in requests]:
            raise ValueError("the predictor answered other groups than it was asked about")
        return found


def _describe_failure(request: GroupRequest, error: Exception) -> GroupVerdict:
    what = str(error) if isinstance(error, GroupwiseError) else type(error).__name__
    return GroupVerdict(request.id, None, needs_person=True, failure=f"error: {what}")
