"""Bodies on their way in: each bounded in size and time, all of them together in size."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from starlette.types import Message, Receive

from groupwise.serving.settings import ServeSettings

FORM = "multipart/form-data"


class BodyRefusedError(Exception):
    """A body broke a limit, or its sender has gone.

    Attributes:
        status: of the answer.
        sentence: why.
        headers: of the answer.
    """

    def __init__(self, status: int, sentence: str, **headers: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence
        self.headers = {"Connection": "close", **headers}


class Arrivals:
    """The bodies that are held, arriving or there; over their bound the largest arriving one goes.

    Who sends much and slowly so keeps nobody else from sending.

    Args:
        settings: the limits.
    """

    def __init__(self, settings: ServeSettings) -> None:
        self._settings = settings
        self._arriving: set[Body] = set()
        self._num_bytes = 0

    @contextmanager
    def hold(self, receive: Receive, headers: Mapping[bytes, bytes]) -> "Iterator[Body]":
        """Give the body of a request, to be received while it is held."""
        mib = _find_limit(headers, self._settings)
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > mib * 2**20:
            raise _refuse_size(mib)
        body = Body(receive, self, mib, self._settings)
        self._arriving.add(body)
        try:
            yield body
        finally:
            self.end(body)
            self._drop(body)

    def grow(self, body: "Body", num_bytes: int) -> None:
        """Count what has arrived of a body, and give up the largest ones while it is too much."""
        body.num_bytes += num_bytes
        self._num_bytes += num_bytes
        while self._num_bytes > self._settings.max_held_mib * 2**20 and self._arriving:
            largest = max(self._arriving, key=lambda one: one.num_bytes)
            self.end(largest)
            self._drop(largest)
            text = "too much is being sent at once"
            largest.give_up(BodyRefusedError(429, text, **{"Retry-After": "1"}))

    def end(self, body: "Body") -> None:
        """Count a body as there."""
        self._arriving.discard(body)

    def _drop(self, body: "Body") -> None:
        self._num_bytes -= body.num_bytes
        body.num_bytes = 0


class Body:
    """One of them.

    Attributes:
        num_bytes: that are there.
        refusal: why no more of it is taken.
    """

    def __init__(
        self, receive: Receive, arrivals: Arrivals, max_mib: float, settings: ServeSettings
    ) -> None:
        self.num_bytes = 0
        self.refusal: BodyRefusedError | None = None
        self._receive = receive
        self._arrivals = arrivals
        self._max_mib = max_mib
        self._read_timeout_s = settings.read_timeout_s
        self._ends_at = asyncio.get_running_loop().time() + settings.upload_timeout_s
        self._timer: asyncio.Timeout | None = None
        self._is_whole = False

    async def receive(self) -> Message:
        """Return its next part, and only the end of the connection after the last."""
        if self._is_whole:
            return await self._receive()
        message = await self._wait()
        if message["type"] == "http.disconnect":
            self.refusal = BodyRefusedError(400, "the asker has gone")
        else:
            self._arrivals.grow(self, len(message.get("body", b"")))
        if self.refusal is None and self.num_bytes > self._max_mib * 2**20:
            self.refusal = _refuse_size(self._max_mib)
        if self.refusal is not None:
            raise self.refusal
        if not message.get("more_body", False):
            self._is_whole = True
            self._arrivals.end(self)
        return message

    def give_up(self, refusal: BodyRefusedError) -> None:
        """Take no more of it, from now on."""
        self.refusal = refusal
        if self._timer is not None:
            self._timer.reschedule(asyncio.get_running_loop().time())

    async def _wait(self) -> Message:
        if self.refusal is not None:
            raise self.refusal
        ends_at = min(asyncio.get_running_loop().time() + self._read_timeout_s, self._ends_at)
        try:
            async with asyncio.timeout_at(ends_at) as self._timer:
                return await self._receive()
        except TimeoutError:
            text = "the request did not arrive in time"
            self.refusal = self.refusal or BodyRefusedError(408, text)
            raise self.refusal from None
        finally:
            self._timer = None


def _find_limit(headers: Mapping[bytes, bytes], settings: ServeSettings) -> float:
    """Return how many MiB a body may have; what is no form is held in memory."""
    kind = headers.get(b"content-type", b"").strip().lower()
    is_form = kind.startswith(FORM.encode())
    return settings.max_body_mib if is_form else min(settings.max_json_mib, settings.max_body_mib)


def _refuse_size(max_mib: float) -> BodyRefusedError:
    return BodyRefusedError(413, f"the request is larger than {max_mib:g} MiB")
