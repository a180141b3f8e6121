"""Messages between the machines of a run: JSON, over TCP, to those who can read the run folder.

The first machine writes where it listens, and a key, into the run folder. So who comes has found
the same folder, and nobody else is let in; what is said is not encrypted. A machine that is gone is
noticed at once where its process has ended, and within a minute where it is silent.
"""

import json
import os
import secrets
import socket
import struct
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from pathlib import Path
from typing import Any

from groupwise.core import ConfigError, RunError

MEET_S = 600.0
"""For all machines to come: a cluster does not start them at one moment."""
CARD = ".machines.json"
_MAX_BYTES = 2**24
_HANDSHAKE_S = 10
_PAUSE_S = 0.2
_KEEP_ALIVE = {
    "TCP_KEEPIDLE": 20,
    "TCP_KEEPINTVL": 10,
    "TCP_KEEPCNT": 4,
    "TCP_USER_TIMEOUT": 60_000,
}


class LostError(Exception):
    """The other machine's process has ended, or it answers no more."""


class Channel:
    """To one other machine.

    Args:
        connected: a socket whose other end knows ``key``.
        key: of the run.
        is_first: whether this machine was called.

    Raises:
        LostError: if the other end does not know the key.

    Attributes:
        address: of this machine, as the other one reaches it.
    """

    def __init__(self, connected: socket.socket, key: bytes, *, is_first: bool) -> None:
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEP_ALIVE.items():
            if hasattr(socket, name):
                connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        self.address = str(connected.getsockname()[0])
        self._pipe = Connection(os.dup(connected.fileno()))
        checks = [deliver_challenge, answer_challenge]
        with connected:
            _wait_at_most(connected, _HANDSHAKE_S)
            try:
                for check in checks if is_first else reversed(checks):
                    check(self._pipe, key)
            except (AuthenticationError, EOFError, OSError) as error:
                self._pipe.close()
                raise LostError("the other end does not know the key of the run") from error
            _wait_at_most(connected, 0)

    def send(self, **message: Any) -> None:
        """Say something.

        Raises:
            LostError: if the other machine is gone.
        """
        try:
            self._pipe.send_bytes(json.dumps(message).encode())
        except OSError as error:
            raise LostError(str(error)) from error

    def receive(self, timeout_s: float | None = None) -> dict[str, Any] | None:
        """Return what was said; None: nothing within this time.

        Raises:
            LostError: if the other machine is gone.
        """
        try:
            if timeout_s is not None and not self._pipe.poll(timeout_s):
                return None
            return json.loads(self._pipe.recv_bytes(_MAX_BYTES))
        except (EOFError, OSError) as error:
            raise LostError(str(error)) from error

    def close(self) -> None:
        """Let the other one see that nothing more is said."""
        self._pipe.close()


def _wait_at_most(connected: socket.socket, seconds: int) -> None:
    """Bound reading, or no longer (0); a time limit of Python's would be of this object alone."""
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", seconds, 0))


class Door:
    """Where the first machine lets others in.

    Args:
        listening: a socket.
        key: of the run.
    """

    def __init__(self, listening: socket.socket, key: bytes) -> None:
        self._listening, self._key = listening, key

    def let_in(self, timeout_s: float) -> Channel | None:
        """Return the channel to one that came and has the key; None: none did within this time."""
        self._listening.settimeout(max(0.01, timeout_s))
        with suppress(TimeoutError, LostError):
            connected, _ = self._listening.accept()
            connected.setblocking(True)
            return Channel(connected, self._key, is_first=True)
        return None


@contextmanager
def open_door(out: Path, address: str) -> Generator[Door]:
    """Listen for the other machines, and leave in the run folder how they come in.

    Raises:
        ConfigError: if the address is none of this machine.
    """
    key, card = secrets.token_bytes(32), out / CARD
    try:
        listening = socket.create_server((address, 0))
    except OSError as error:
        raise ConfigError(
            f"this machine is the first, but MASTER_ADDR {address} is none of its addresses",
            got=error.strerror,
        ) from error
    with listening:
        _write_card(card, {"address": listening.getsockname()[:2], "key": key.hex()})
        try:
            yield Door(listening, key)
        finally:
            card.unlink(missing_ok=True)


def _write_card(card: Path, told: Mapping[str, Any]) -> None:
    """Write what only this user may read."""
    part = card.with_name(f"{CARD}.{os.getpid()}.part")
    with open(os.open(part, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "w") as stream:
        json.dump(told, stream)
    os.replace(part, card)


def enter(out: Path) -> Channel:
    """Return the channel to the first machine, as soon as it listens.

    Raises:
        RunError: if it does not in time.
    """
    deadline_s = time.monotonic() + MEET_S
    while time.monotonic() < deadline_s:
        # What a run left that was killed leads nowhere, until the next one has replaced it.
        with suppress(OSError, ValueError, LostError):
            card = json.loads((out / CARD).read_bytes())
            calling = socket.create_connection(tuple(card["address"]), timeout=_HANDSHAKE_S)
            calling.setblocking(True)
            return Channel(calling, bytes.fromhex(card["key"]), is_first=False)
        time.sleep(_PAUSE_S)
    raise RunError(
        f"the first machine was not found within {MEET_S:.0f} s",
        got=f"no way to it in {out / CARD}",
        fix="start it too, with the same --out on a file system that all machines share",
    )
