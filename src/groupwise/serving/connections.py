"""Connections: at most so many, none that stays without a request, no head or body in crumbs.

Uvicorn times only a pause after an answer, and only until the next byte. Here the time runs until
there is a whole head, from the first moment of a connection on. Where all places are taken, a new
connection gets that of the one that has kept the server waiting longest.
"""

from asyncio import Transport
from typing import Any, cast

import h11
from h11._receivebuffer import ReceiveBuffer
from uvicorn.protocols.http.h11_impl import H11Protocol

_NUM_FREE_CHUNKS = 1024
_CHUNK_BYTES = 1024
_MAX_LINES = 100


class Connection(H11Protocol):
    """One of uvicorn's, with ``limit_concurrency`` and ``timeout_keep_alive`` as its limits."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.conn = _Parser(h11.SERVER, self.config.h11_max_incomplete_event_size or 2**16)
        self.waits_since = 0.0

    def connection_made(self, transport: Transport) -> None:  # pyright: ignore
        """Wait for a head, in a place of its own."""
        super().connection_made(transport)
        self.waits_since = self.loop.time()
        wait_s, give_up = self.timeout_keep_alive, self.timeout_keep_alive_handler
        self.timeout_keep_alive_task = self.loop.call_later(wait_s, give_up)
        if len(self.connections) >= (self.limit_concurrency or len(self.connections) + 1):
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it, which uvicorn does not do before the wait ends where it was broken off."""
        super().connection_lost(exc)
        self._unset_keepalive_if_required()

    def data_received(self, data: bytes) -> None:
        """Take what arrives, which alone does not end the wait: a whole head does."""
        self.conn.receive_data(data)
        self.handle_events()

    def on_response_complete(self) -> None:
        """Wait for the next head."""
        self.waits_since = self.loop.time()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, unless it follows an answer."""
        if self.cycle is not None:
            self.cycle.disconnected = True  # what the application still says comes too late
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()

    def _make_room(self) -> None:
        """Give up who sends no head for longest, or else who sends a body for longest."""
        others = [cast("Connection", one) for one in self.connections if one is not self]
        slow = [one for one in others if one._keeps_waiting()]
        slowest = min(slow, key=lambda one: (one._has_sent_head(), one.waits_since), default=self)
        self.connections.discard(slowest)  # it is lost only later, and counts no more
        slowest.transport.abort()

    def _has_sent_head(self) -> bool:
        return self.timeout_keep_alive_task is None

    def _keeps_waiting(self) -> bool:
        """Return whether it is the other side's turn, and not the server's."""
        cycle = self.cycle
        is_idle = not self._has_sent_head() or cycle.response_complete
        return is_idle or cycle.more_body or self.flow.write_paused


class _Parser(h11.Connection):
    """Refuses heads and bodies in crumbs: each chunk costs as much time as a thousand bytes."""

    _num_chunks = 0
    _num_bytes = 0

    def __init__(self, our_role: type[h11.SERVER], max_incomplete_event_size: int) -> None:
        super().__init__(our_role, max_incomplete_event_size)
        self._receive_buffer = _Lines()

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._num_chunks = self._num_bytes = 0
        elif isinstance(event, h11.Data):
            self._num_chunks += event.chunk_start
            self._num_bytes += len(event.data)
            if self._num_chunks > _NUM_FREE_CHUNKS + self._num_bytes / _CHUNK_BYTES:
                raise h11.RemoteProtocolError("a body in crumbs")
        return event


class _Lines(ReceiveBuffer):
    """What has arrived; of a head, or of what follows a body, only so many lines are parsed."""

    def maybe_extract_lines(self) -> list[bytearray] | None:
        lines = super().maybe_extract_lines()
        if lines is not None and len(lines) > _MAX_LINES:
            raise h11.RemoteProtocolError("a head in crumbs", error_status_hint=431)
        return lines
