"""What stands before every request: the token and the limits of its body; and places for the whole.

The answers of everything behind it are counted.
"""

import hmac
from asyncio import CancelledError
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from fastapi import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from groupwise.serving.arrivals import Arrivals, Body, BodyRefusedError
from groupwise.serving.guesses import RETRY_AFTER, TOO_MANY, Guesses, find_address
from groupwise.serving.meters import Meters
from groupwise.serving.settings import ServeSettings


def refuse(status: int, sentence: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Return the answer that refuses a request, with the reason in one sentence."""
    return JSONResponse({"detail": sentence}, status, headers=headers)


OPEN_PATHS = frozenset({"/healthz", "/readyz"})
REVIEW = "/review"
"""Where the page for people is: browsers send no bearer token, it asks for the token itself."""


class Places:
    """Places for requests that wait for the policy or are being answered by it.

    Args:
        settings: how many there are.
        meters: what is counted.
    """

    def __init__(self, settings: ServeSettings, meters: Meters) -> None:
        self._num_places = settings.max_waiting
        self._meters = meters
        self._num_taken = 0

    @contextmanager
    def take(self) -> Iterator[None]:
        """Take a place for a request whose body is there."""
        if self._num_taken >= self._num_places:
            raise HTTPException(429, "too many requests are waiting", {"Retry-After": "1"})
        self._move(1)
        try:
            yield
        finally:
            self._move(-1)

    def _move(self, change: int) -> None:
        self._num_taken += change
        self._meters.waiting.set(self._num_taken)


class Guard:
    """An ASGI layer.

    Args:
        app: what stands behind it.
        settings: the limits and the token.
        meters: what is counted.
    """

    def __init__(self, app: ASGIApp, settings: ServeSettings, meters: Meters) -> None:
        self.app = app
        self.token = settings.token
        self.meters = meters
        self.arrivals = Arrivals(settings)
        self.guesses = Guesses()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 401, 408, 413, 429 or 503, or hand the request on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        counted = _CountedAnswer(send, self.meters)
        path, headers = scope["path"], {name.lower(): value for name, value in scope["headers"]}
        unknown = self._refuse_unknown(scope, path, headers.get(b"authorization", b""))
        if unknown is not None:
            await unknown(scope, receive, counted.send)
            return
        try:
            with self.arrivals.hold(receive, headers) as body:
                await self._hand_on(scope, body, counted)
        except BodyRefusedError as error:
            refusal = refuse(error.status, error.sentence, error.headers)
        except CancelledError:  # it was not done stop_timeout_s after the order to stop
            refusal = refuse(503, "the server is stopping", {"Connection": "close"})
        else:
            return
        if not counted.has_begun:
            await refusal(scope, receive, counted.send)

    def _refuse_unknown(self, scope: Scope, path: str, given: bytes) -> JSONResponse | None:
        """Return the refusal of who has not the token; None where it is not asked for, or there."""
        if self.token is None or path in OPEN_PATHS or f"{path}/".startswith(f"{REVIEW}/"):
            return None
        address = find_address(scope)
        if self.guesses.are_too_many(address):
            return refuse(429, TOO_MANY, RETRY_AFTER)
        if hmac.compare_digest(given, f"Bearer {self.token}".encode()):
            return None
        if given:
            self.guesses.note(address)
        sentence = "the token is missing or wrong"
        return refuse(401, sentence, {"WWW-Authenticate": "Bearer"})

    async def _hand_on(self, scope: Scope, body: Body, counted: "_CountedAnswer") -> None:
        async def send(message: Message) -> None:
            if body.refusal is None:
                await counted.send(message)

        try:
            await self.app(scope, body.receive, send)
        finally:
            # Whatever the application made of it: what it was not given whole is refused here.
            if body.refusal is not None:
                raise body.refusal


class _CountedAnswer:
    """Counts the answer's status on its way out."""

    def __init__(self, send: Send, meters: Meters) -> None:
        self._send = send
        self._meters = meters
        self.has_begun = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_begun = True
            self._meters.requests.labels(str(message["status"])).inc()
        await self._send(message)
