"""What stands before every request: the token, a free place, the size of the body and its time.

It refuses what need not be read, in the form that the route's askers know, and counts the answers
of everything behind it.
"""

import asyncio
import hmac
from collections.abc import Mapping
from time import monotonic
from typing import Any

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from groupwise.serving.meters import Meters
from groupwise.serving.settings import ServeSettings

CHAT = "/v1/chat/completions"
_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}


def refuse(
    path: str, status: int, sentence: str, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """Return the answer that refuses a request.

    Args:
        path: of the route; chats are refused in OpenAI's form.
        status: of HTTP.
        sentence: why.
        headers: of the answer.
    """
    if path != CHAT:
        return JSONResponse({"detail": sentence}, status, headers=headers)
    status = 400 if status == 422 else status
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    error: dict[str, Any] = {"message": sentence, "type": kind, "param": None, "code": None}
    return JSONResponse({"error": error}, status, headers=headers)


ASKED_PATHS = frozenset({"/v1/predict", CHAT})
"""Paths of requests that wait for the policy."""
OPEN_PATHS = frozenset({"/healthz", "/readyz"})


class Guard:
    """An ASGI layer.

    Args:
        app: what stands behind it.
        settings: the limits and the token.
        meters: what is counted.
    """

    def __init__(self, app: ASGIApp, settings: ServeSettings, meters: Meters) -> None:
        self.app = app
        self.settings = settings
        self.meters = meters
        self.num_waiting = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 401, 408, 413 or 429, or hand the request on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        counted = _CountedAnswer(send, self.meters)
        refusal = self._find_refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, counted.send)
            return
        if scope["path"] not in ASKED_PATHS:
            await self._hand_on(scope, receive, counted)
            return
        self._move_waiting(1)
        try:
            await self._hand_on(scope, receive, counted)
        finally:
            self._move_waiting(-1)

    def _find_refusal(self, scope: Scope) -> JSONResponse | None:
        path, headers = scope["path"], {name.lower(): value for name, value in scope["headers"]}
        if not self._is_allowed(path, headers.get(b"authorization", b"")):
            sentence = "the token is missing or wrong"
            return refuse(path, 401, sentence, {"WWW-Authenticate": "Bearer"})
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self.settings.max_body_bytes:
            return _refuse_size(path, self.settings)
        if path in ASKED_PATHS and self.num_waiting >= self.settings.max_waiting:
            return refuse(path, 429, "too many requests are waiting", {"Retry-After": "1"})
        return None

    def _is_allowed(self, path: str, given: bytes) -> bool:
        if self.settings.token is None or path in OPEN_PATHS:
            return True
        return hmac.compare_digest(given, f"Bearer {self.settings.token}".encode())

    async def _hand_on(self, scope: Scope, receive: Receive, counted: "_CountedAnswer") -> None:
        body = _LimitedBody(scope["path"], receive, self.settings)

        async def send(message: Message) -> None:
            if body.refusal is None:
                await counted.send(message)

        try:
            await self.app(scope, body.receive, send)
        except _BodyRefusedError:
            pass
        finally:
            # Whatever the application made of it: what it was not given whole is refused here.
            if body.refusal is not None and not counted.has_begun:
                await body.refusal(scope, receive, counted.send)

    def _move_waiting(self, change: int) -> None:
        self.num_waiting += change
        self.meters.waiting.set(self.num_waiting)


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


class _BodyRefusedError(Exception):
    """The body is too large or too slow."""


class _LimitedBody:
    """Counts and times the body of one request.

    Attributes:
        refusal: the answer to a body that broke a limit.
    """

    def __init__(self, path: str, receive: Receive, settings: ServeSettings) -> None:
        self.refusal: JSONResponse | None = None
        self._path = path
        self._receive = receive
        self._settings = settings
        self._num_bytes = 0
        self._is_whole = False
        self._ends_at = monotonic() + settings.upload_timeout_s

    async def receive(self) -> Message:
        if self._is_whole:  # what comes now is only the end of the connection
            return await self._receive()
        left_s = min(self._settings.read_timeout_s, self._ends_at - monotonic())
        try:
            message = await asyncio.wait_for(self._receive(), max(left_s, 0.001))
        except TimeoutError as error:
            text = "the request did not arrive in time"
            self.refusal = refuse(self._path, 408, text, {"Connection": "close"})
            raise _BodyRefusedError from error
        self._num_bytes += len(message.get("body", b""))
        if self._num_bytes > self._settings.max_body_bytes:
            self.refusal = _refuse_size(self._path, self._settings)
            raise _BodyRefusedError
        self._is_whole = message["type"] != "http.request" or not message.get("more_body", False)
        return message


def _refuse_size(path: str, settings: ServeSettings) -> JSONResponse:
    text = f"the request is larger than {settings.max_body_mib:g} MiB"
    return refuse(path, 413, text, {"Connection": "close"})
