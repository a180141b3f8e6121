"""Messages between two processes over file descriptors: a length, then JSON."""

from __future__ import annotations

import os

from groupwise.sandbox.guest.codec import dump, load

TYPE_CHECKING = False  # typing takes as long to import as all the rest
if TYPE_CHECKING:
    from typing import Any

MAX_MESSAGE_BYTES = 1 << 26
_LENGTH_BYTES = 4


class Channel:
    """One end of a conversation.

    Args:
        reading: descriptor to read from.
        writing: descriptor to write to.
        max_depth: of messages that are read; None: whatever can be read.
    """

    def __init__(self, reading: int, writing: int, *, max_depth: int | None = None) -> None:
        self.max_depth = max_depth
        self.reading = reading
        self.writing = writing

    def send(self, message: Any) -> None:
        """Write one message.

        Raises:
            OSError: if the other end is closed.
            ValueError: if the message is too long.
        """
        rest = memoryview(frame(message))
        while rest:
            rest = rest[os.write(self.writing, rest) :]

    def receive(self) -> Any:
        """Read one message.

        Raises:
            EOFError: if the other end is closed.
            ValueError: if what comes is no message, or too long or deep.
        """
        length = int.from_bytes(self._read(_LENGTH_BYTES), "big")
        if length > MAX_MESSAGE_BYTES:
            raise ValueError("a message is too long")
        data = self._read(length)
        message = load(data)
        deepest = self.max_depth
        if (
            deepest
            and data.count(b"[") + data.count(b"{") > deepest
            and _is_deeper(message, deepest)
        ):
            raise ValueError("a message is too deep")
        return message

    def _read(self, num_bytes: int) -> bytes:
        parts: list[bytes] = []
        while num_bytes:
            part = os.read(self.reading, min(num_bytes, 1 << 20))
            if not part:
                raise EOFError("the other process has ended")
            parts.append(part)
            num_bytes -= len(part)
        return b"".join(parts)


def _is_deeper(message: Any, depth: int) -> bool:
    level = [message]
    for _ in range(depth):
        level = [
            inner
            for held in level
            if type(held) is list or type(held) is dict
            for inner in (held if type(held) is list else held.values())
        ]
        if not level:
            return False
    return True


def frame(message: Any) -> bytes:
    """Return a message as it goes over the wire.

    Raises:
        ValueError: if it is too long.
    """
    data = dump(message)
    if len(data) > MAX_MESSAGE_BYTES:
        raise ValueError("a message is too long")
    return len(data).to_bytes(_LENGTH_BYTES, "big") + data
