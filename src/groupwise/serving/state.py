"""What the routes of one application share, and how each of them asks."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, HTTPException
from fastapi import Request as HttpRequest

from groupwise.core import Example, GroupwiseError
from groupwise.serving.guards import Places
from groupwise.serving.meters import Meters
from groupwise.serving.predictor import Answer
from groupwise.serving.settings import ServeSettings
from groupwise.serving.source import Source
from groupwise.serving.uploads import Stored, Uploads
from groupwise.serving.versions import Version, Versions

if TYPE_CHECKING:
    from groupwise.serving.feedback import Desk


class State:
    """What the routes share.

    Args:
        source: of what answers.
        settings: the limits.
        folder: an existing folder for uploads.
        desk: takes feedback.
    """

    def __init__(
        self,
        source: Source,
        settings: ServeSettings,
        *,
        folder: Path,
        desk: "Desk | None",
    ) -> None:
        self.settings = settings
        self.meters = Meters()
        self.places = Places(settings, self.meters)
        self.versions = Versions(source, settings, self.meters)
        self.uploads = Uploads(folder, settings)
        self.desk = desk
        self.is_ready = False

    @asynccontextmanager
    async def live(self, app: FastAPI) -> AsyncIterator[None]:
        """Take requests until the application ends."""
        self.versions.start()
        self.is_ready = True
        yield
        self.is_ready = False
        await self.versions.stop()
        self.uploads.close()
        if self.desk is not None:
            self.desk.close()

    async def ask(
        self,
        http: HttpRequest,
        version: Version,
        stored: Stored,
        make_question: Callable[[], Example],
    ) -> tuple[Example, Answer]:
        """Return a question and its answer, unless it takes too long or the asker goes away."""
        if not self.is_ready:
            raise HTTPException(503, "the server is stopping")
        try:
            question = await stored.run(make_question)
            return question, await self._wait(http, version.batcher.answer(question))
        except GroupwiseError as error:
            raise HTTPException(422, str(error)) from error

    async def _wait(self, http: HttpRequest, answer: Coroutine[Any, Any, Answer]) -> Answer:
        answered = asyncio.ensure_future(answer)
        gone = asyncio.ensure_future(_wait_for_end(http))
        limit_s = self.settings.answer_timeout_s
        try:
            both = {answered, gone}
            await asyncio.wait(both, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
            if answered.done():
                return _read_result(answered)
            if gone.done():
                raise HTTPException(499, "the asker has gone")
            raise HTTPException(504, f"no answer within {limit_s:g} s")
        finally:
            answered.cancel()
            gone.cancel()


def _read_result(answered: asyncio.Future[Answer]) -> Answer:
    error = answered.exception()
    if error is None or isinstance(error, GroupwiseError):
        return answered.result()
    raise HTTPException(500, f"the predictor broke on it ({type(error).__name__})") from error


async def _wait_for_end(http: HttpRequest) -> None:
    while (await http.receive())["type"] != "http.disconnect":
        pass
