"""Functions of the host, as the program calls them: arguments and results are JSON values."""

from __future__ import annotations

from groupwise.sandbox.guest.channel import Channel
from groupwise.sandbox.guest.tasks import Waiting

TYPE_CHECKING = False  # typing takes as long to import as all the rest
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class HostCallError(RuntimeError):
    """A function of the host raised an error that has no class here."""


class HostCalls:
    """Calls that are on their way to the host.

    Args:
        channel: to the host.
        is_in_order: whether calls are awaited under ``Tasks`` rather than under asyncio.
    """

    def __init__(self, channel: Channel, *, is_in_order: bool) -> None:
        self.channel = channel
        self.is_in_order = is_in_order
        self.num_calls = 0
        self.waiting: dict[int, Any] = {}
        self.early: dict[int, dict[str, Any]] = {}

    def make_functions(self, functions: dict[str, bool]) -> dict[str, Callable[..., Any]]:
        """Return a function for each name; those marked true are to be awaited."""
        return {name: self._make(name, is_async=is_async) for name, is_async in functions.items()}

    def _make(self, name: str, *, is_async: bool) -> Callable[..., Any]:
        if not is_async:
            return self._make_plain(name)
        return self._make_ordered(name) if self.is_in_order else self._make_awaited(name)

    def receive(self, number: int) -> Any:
        """Return the answer to a call; others that come before it are kept.

        Raises:
            Exception: the function's error.
        """
        while number not in self.early:
            reply = self.channel.receive()
            if reply["number"] in self.waiting:
                self._settle(reply)
            else:
                self.early[reply["number"]] = reply
        reply = self.early.pop(number)
        if "error" in reply:
            raise _make_error(reply["error"])
        return reply["value"]

    def _make_plain(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            return self.receive(self._send(name, args, kwargs))

        call.__name__ = call.__qualname__ = name
        return call

    def _make_ordered(self, name: str) -> Callable[..., Any]:
        async def call(*args: Any, **kwargs: Any) -> Any:
            return await Waiting(self._send(name, args, kwargs))

        call.__name__ = call.__qualname__ = name
        return call

    def _make_awaited(self, name: str) -> Callable[..., Any]:
        import asyncio

        async def call(*args: Any, **kwargs: Any) -> Any:
            loop = asyncio.get_running_loop()
            future = loop.create_future()
            self.waiting[self._send(name, args, kwargs)] = future
            loop.add_reader(self.channel.reading, self._read)
            try:
                return await future
            finally:
                if not self.waiting:
                    loop.remove_reader(self.channel.reading)

        call.__name__ = call.__qualname__ = name
        return call

    def _send(self, name: str, args: Any, kwargs: dict[str, Any]) -> int:
        self.num_calls += 1
        try:
            self.channel.send(
                {"number": self.num_calls, "name": name, "args": list(args), "kwargs": kwargs}
            )
        except (TypeError, ValueError) as error:
            raise TypeError(f"{name} takes JSON values ({error})") from None
        return self.num_calls

    def _read(self) -> None:
        self._settle(self.channel.receive())

    def _settle(self, reply: dict[str, Any]) -> None:
        future = self.waiting.pop(reply["number"], None)
        if future is None or future.done():
            return
        if "error" in reply:
            future.set_exception(_make_error(reply["error"]))
        else:
            future.set_result(reply["value"])


def _make_error(error: dict[str, str]) -> Exception:
    import builtins

    kind = getattr(builtins, error["class"], None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        return kind(error["text"])
    return HostCallError(f"{error['class']}: {error['text']}")
