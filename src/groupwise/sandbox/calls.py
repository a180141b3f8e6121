"""The program's calls of host functions, as they come from it: nothing of them is trusted.

They are bounded here, before anything is read: each in length and in parts, those that are at work
together, and all of a program. A program that sends more is not listened to any more.
"""

import asyncio
import socket
from contextlib import suppress
from typing import Any

from groupwise.sandbox.host_functions import HostFunctions
from groupwise.sandbox.messages import read, receive_bytes, send

_MAX_CALL_BYTES = 1 << 22
_MAX_BYTES_AT_WORK = 1 << 23
_MAX_ALL_BYTES = 1 << 26
_MAX_CONTAINERS = 20_000  # an empty one takes thirty times the memory of its text
_MAX_REFUSALS = 100
_KINDS = {"name": str, "args": list, "kwargs": dict, "number": int}


class Caller:
    """Answers the calls of one program, those at the same time in any order.

    Args:
        end: the host's end of the conversation.
        functions: what may be called.
    """

    def __init__(self, end: socket.socket, functions: HostFunctions) -> None:
        self._end = end
        self._functions = functions
        self._sending = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._bytes_at_work = 0
        self._has_room = asyncio.Event()

    async def answer_all(self) -> None:
        """Answer until there is nobody to answer, or what comes is no call."""
        self._end.setblocking(False)
        left = _MAX_ALL_BYTES
        try:
            # One that is over the limit is told so; a program that goes on is not listened to.
            for _ in range(self._functions.max_calls + _MAX_REFUSALS):
                data = await receive_bytes(self._end, max_bytes=min(_MAX_CALL_BYTES, left))
                left -= len(data)
                if data.count(b"[") + data.count(b"{") > _MAX_CONTAINERS:
                    return
                message = read(data)
                if any(type(message.get(key)) is not kind for key, kind in _KINDS.items()):
                    return
                await self._start(message, len(data))
            await asyncio.Event().wait()
        except (EOFError, OSError, ValueError, RecursionError):
            return
        finally:
            for task in self._tasks:
                task.cancel()
            with suppress(OSError):  # so that it does not wait for an answer
                self._end.shutdown(socket.SHUT_RDWR)

    async def _start(self, message: dict[str, Any], num_bytes: int) -> None:
        """Let a call be answered; wait while too much is at work."""
        self._bytes_at_work += num_bytes
        task = asyncio.ensure_future(self._answer(message))
        self._tasks.add(task)

        def end(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            self._bytes_at_work -= num_bytes
            self._has_room.set()

        task.add_done_callback(end)
        # What is there already is received at once: others would have no turn.
        await asyncio.sleep(0)
        while self._bytes_at_work > _MAX_BYTES_AT_WORK:
            self._has_room.clear()
            await self._has_room.wait()

    async def _answer(self, message: dict[str, Any]) -> None:
        given = await self._functions.call(message["name"], message["args"], message["kwargs"])
        reply: dict[str, Any] = {"number": message["number"]}
        if given.error:
            reply["error"] = {"class": given.error, "text": given.message}
        else:
            reply["value"] = given.value
        async with self._sending:
            await send(self._end, reply)
