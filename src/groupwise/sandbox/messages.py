"""Messages to and from a sandbox, bounded in length whatever comes."""

import asyncio
import socket
from typing import Any

from groupwise.sandbox.guest.channel import frame
from groupwise.sandbox.guest.codec import load

_LENGTH_BYTES = 4


async def send(end: socket.socket, message: Any) -> None:
    """Write one message."""
    await asyncio.get_running_loop().sock_sendall(end, frame(message))


async def receive(end: socket.socket, *, max_bytes: int) -> dict[str, Any]:
    """Return the next message."""
    return read(await receive_bytes(end, max_bytes=max_bytes))


def read(data: bytes) -> dict[str, Any]:
    """Return the message in ``data``."""
    message = load(data)
    if not isinstance(message, dict):
        raise ValueError("a message is no object")
    return message


async def receive_bytes(end: socket.socket, *, max_bytes: int) -> bytes:
    """Return the next message as it came."""
    length = int.from_bytes(await _receive(end, _LENGTH_BYTES), "big")
    if length > max_bytes:
        raise ValueError("a message is too long")
    return await _receive(end, length)


async def _receive(end: socket.socket, num_bytes: int) -> bytes:
    loop = asyncio.get_running_loop()
    data = bytearray()
    while len(data) < num_bytes:
        part = await loop.sock_recv(end, min(num_bytes - len(data), 1 << 20))
        if not part:
            raise EOFError("the sandbox has ended")
        data += part
    return bytes(data)
