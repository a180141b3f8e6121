"""Which version answers: the one that is served, and those before it until their last answer.

All of this happens on the event loop, so that nothing comes between a question and its version.
"""

import asyncio
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from fastapi import HTTPException

from groupwise.core import GroupwiseError
from groupwise.serving.batching import Batcher
from groupwise.serving.meters import Meters
from groupwise.serving.settings import ServeSettings
from groupwise.serving.source import Opened, Source


class Version:
    """A predictor with a thread of its own, and the questions that wait for it.

    Args:
        opened: the predictor.
        thread: in which it answers.
        settings: sizes and waits of batches.
        meters: what is counted.
    """

    def __init__(
        self,
        opened: Opened,
        thread: ThreadPoolExecutor,
        settings: ServeSettings,
        meters: Meters,
    ) -> None:
        self.name = opened.version
        self.predictor = opened.predictor
        self.batcher = Batcher(self.predictor.answer, thread, settings, meters)
        self.num_users = 0
        self._close = opened.close
        self._thread = thread

    def start(self) -> None:
        """Begin to answer."""
        self.batcher.start()

    async def stop(self) -> None:
        """End after what is being answered; nobody may be waiting any more."""
        await self.batcher.stop()
        await asyncio.to_thread(self._thread.shutdown)
        await asyncio.to_thread(self._close)


class Versions:
    """The version that is served, which may be swapped for another while questions come.

    Args:
        source: where predictors come from; the first is opened here and now.
        settings: of the server.
        meters: what is counted.
    """

    def __init__(self, source: Source, settings: ServeSettings, meters: Meters) -> None:
        self._source = source
        self._settings = settings
        self._meters = meters
        self._swapping = asyncio.Lock()
        self._leaving: set[asyncio.Task[None]] = set()
        self.current = self._prepare(source.open(), _make_thread())

    @contextmanager
    def use(self) -> Generator[Version]:
        """Give the version that is served now; it is not let go before the block ends."""
        version = self.current
        version.num_users += 1
        try:
            yield version
        finally:
            version.num_users -= 1
            self._let_go_if_unused(version)

    def start(self) -> None:
        """Begin to answer."""
        self.current.start()
        self._meters.versions.labels(self.current.name).set(1)

    async def stop(self) -> None:
        """End; nobody may be waiting any more."""
        await asyncio.gather(self.current.stop(), *self._leaving)

    async def reload(self) -> bool:
        """Serve what the source names now; the served version answers until the other is there.

        Returns:
            False if that is the version that is served, and nothing changed.
        """
        async with self._swapping:
            try:
                is_new = await self._swap()
            except GroupwiseError as error:
                self._meters.reloads.labels("refused").inc()
                raise HTTPException(409, str(error)) from error
            except Exception as error:
                self._meters.reloads.labels("refused").inc()
                text = f"the new version broke when it was opened ({type(error).__name__})"
                raise HTTPException(500, text) from error
        self._meters.reloads.labels("new" if is_new else "same").inc()
        return is_new

    async def _swap(self) -> bool:
        if await asyncio.to_thread(self._source.find_version) == self.current.name:
            return False
        thread = _make_thread()
        try:
            loop = asyncio.get_running_loop()
            opened = await loop.run_in_executor(thread, self._source.open)
            _check_labels(self.current, opened)
        except BaseException:
            thread.shutdown(wait=False)
            raise
        self._replace(self._prepare(opened, thread))
        return True

    def _replace(self, new: Version) -> None:
        old, self.current = self.current, new
        self._meters.versions.remove(old.name)
        self.start()
        self._let_go_if_unused(old)

    def _let_go_if_unused(self, version: Version) -> None:
        if version is self.current or version.num_users:
            return
        task = asyncio.get_running_loop().create_task(version.stop())
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    def _prepare(self, opened: Opened, thread: ThreadPoolExecutor) -> Version:
        return Version(opened, thread, self._settings, self._meters)


def _check_labels(served: Version, opened: Opened) -> None:
    """Refuse another task: askers, counters and people's labels are about these labels."""
    labels = served.predictor.labels
    if opened.predictor.labels != labels:
        raise GroupwiseError(
            "the new version has other labels",
            got=list(opened.predictor.labels),
            expected=list(labels),
            fix="start a server of its own for it",
        )


def _make_thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="predictor")
