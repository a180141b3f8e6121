"""A model behind a server: many requests at once, pictures as data URLs within the pixel limit."""

import asyncio
import uuid
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from groupwise.core import (
    Completion,
    DataError,
    Example,
    Message,
    ModelError,
    Picture,
    read_picture,
)
from groupwise.inference.engine import Sampling
from groupwise.inference.responder import RequestError, Responder
from groupwise.inference.server import ServerEngine, read_completion
from groupwise.inference.server_settings import LimitSettings, RetrySettings, ServerSettings, retry
from groupwise.inference.shared_loop import start_on_shared_loop
from groupwise.inference.streaming.encoding import is_beyond, open_limited
from groupwise.inference.streaming.local import open_pool
from groupwise.inference.streaming.work import Failure, Outcome, StreamSettings, WorkItem


class ServerBackend:
    """Answers with a responder, one request for each item; the server forms its own batches.

    A request that fails is repeated as ``retry_settings`` say; then it is a failure of its item.
    A server that is gone, or refuses all it is asked, is none of the items: the stream ends.

    Args:
        responder: what is asked, or where a model is served.
        max_concurrency: requests at once; None: as the server's settings say.
        retry_settings: None: as the server's settings say.
        give_up_after: items in a row without a connection, or refused before any was answered.

    Raises:
        ConfigError: if the environment variable of the server's key is not set.
    """

    def __init__(
        self,
        responder: Responder | ServerSettings,
        *,
        max_concurrency: int | None = None,
        retry_settings: RetrySettings | None = None,
        give_up_after: int = 16,
    ) -> None:
        if isinstance(responder, ServerSettings):
            responder = ServerEngine(responder)
        known = responder.settings if isinstance(responder, ServerEngine) else None
        limits = known.limits if known else LimitSettings()
        self.responder = responder
        self.max_concurrency = max_concurrency or limits.max_concurrency
        self.retry_settings = retry_settings or (known.retry if known else RetrySettings())
        self.give_up_after = give_up_after

    def stream(
        self, items: Iterator[WorkItem], *, sampling: Sampling, settings: StreamSettings
    ) -> Generator[tuple[int, Outcome]]:
        """Yield each item's number and outcome as its reply comes.

        Raises:
            ModelError: if the server is gone, or refuses all it is asked.
        """
        vitals = _Vitals(self.give_up_after)
        running: dict[Future[Outcome], int] = {}
        with (
            TemporaryDirectory(prefix="pictures-", ignore_cleanup_errors=True) as folder,
            open_pool(settings.num_threads) as pool,
        ):
            asking = _Asking(self, sampling, settings.max_pixels, pool, Path(folder))
            try:
                for item in self._pace(items, running, settings):
                    if item is not None:
                        running[start_on_shared_loop(asking.ask(item))] = item.number
                        continue
                    done, _ = wait(running, return_when=FIRST_COMPLETED)
                    for future in done:
                        vitals.check(future.result())
                        yield running.pop(future), future.result()
            finally:
                for future in running:
                    future.cancel()

    def _pace(
        self,
        items: Iterator[WorkItem],
        running: dict[Future[Outcome], int],
        settings: StreamSettings,
    ) -> Iterator[WorkItem | None]:
        """Yield the next item to start, or None to wait until a running one is done.

        A few more run than are asked at once, so that pictures are ready when a place is free. In
        input order, none runs too far ahead of the oldest.
        """
        most = self.max_concurrency + settings.num_threads
        window = max(settings.window, 4 * most) if settings.order == "given" else float("inf")
        for item in items:
            while len(running) >= most or _find_lead(item, running) >= window:
                yield None
            yield item
        while running:
            yield None


def _find_lead(item: WorkItem, running: Mapping[Future[Outcome], int]) -> int:
    """Return how far an item is ahead of the oldest that is running."""
    return item.number - min(running.values(), default=item.number)


class _Vitals:
    """Notices a server that will answer no item at all."""

    def __init__(self, give_up_after: int) -> None:
        self._give_up_after = give_up_after
        self._has_answered = False
        self._num_in_vain = 0

    def check(self, outcome: Outcome) -> None:
        if isinstance(outcome, Completion):
            self._has_answered, self._num_in_vain = True, 0
            return
        hopeless = ("connection",) if self._has_answered else ("connection", "refused")
        self._num_in_vain += outcome.cause in hopeless
        if self._num_in_vain >= self._give_up_after:
            raise ModelError(
                f"the server answers nothing: {self._num_in_vain} items in a row failed, the "
                f"last one because of: {outcome.message}",
                fix="see to the server, or to its address, model name and key, and start again",
            )


@dataclass(frozen=True)
class _Asking:
    """One stream's way to ask about an item."""

    backend: ServerBackend
    sampling: Sampling
    max_pixels: int | None
    pool: ThreadPoolExecutor
    folder: Path

    async def ask(self, item: WorkItem) -> Outcome:
        """Return the reply to an item as a completion, or why there is none."""
        loop = asyncio.get_running_loop()
        example = item.example
        try:
            example = await loop.run_in_executor(self.pool, self._limit_pictures, item.example)

            async def attempt() -> Completion:
                reply = await self.backend.responder.respond(example, sampling=self.sampling)
                return read_completion(reply)

            return await retry(attempt, self.backend.retry_settings)
        except RequestError as error:
            return Failure(error.cause, str(error))
        except DataError as error:
            return Failure("picture", str(error))
        except MemoryError:
            return Failure("memory", "out of memory while its pictures were read")
        finally:
            self._remove_copies(example)

    def _limit_pictures(self, example: Example) -> Example:
        def limit(part: str | Picture) -> str | Picture:
            return part if isinstance(part, str) else self._limit_picture(part)

        prompt = [Message(turn.role, map(limit, turn.parts)) for turn in example.prompt]
        return replace(example, prompt=tuple(prompt))

    def _limit_picture(self, picture: Picture) -> Picture:
        """Return the picture, or a copy within the limit; both are known to be whole."""
        opened = open_limited(picture, self.max_pixels)
        if not is_beyond(picture, self.max_pixels):
            return picture
        path = self.folder / f"{uuid.uuid4().hex}.png"
        opened.save(path, format="PNG", compress_level=1)
        return read_picture(path)

    def _remove_copies(self, example: Example) -> None:
        for picture in example.pictures:
            if picture.path.parent == self.folder:
                picture.path.unlink(missing_ok=True)
